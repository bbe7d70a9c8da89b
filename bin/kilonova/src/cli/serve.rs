//! `kilonova serve`.

use std::process::ExitCode;
use std::time::Duration;

use super::Serve;
use crate::config::{CommandLine, Settings};
use crate::failure::Failure;

const SHUTDOWN: Duration = Duration::from_millis(300);

pub(super) fn run(options: Serve) -> Result<ExitCode, Failure> {
    super::malloc::configure();
    let arguments = CommandLine {
        state_dir: options.state_dir,
        listen: options.listen,
        database: options.database,
        nodes: options.nodes,
        node_listen: options.node_listen,
        node_names: options.node_names,
        dev: options.dev,
        log_format: options.log_format,
    };
    let settings = Settings::read(options.config.as_deref(), arguments)?;
    kilonova_program::logs::start(settings.debug, settings.log_format);
    kilonova_program::config::log(&settings.notes);
    let runtime = super::runtime()?;
    let ended = runtime.block_on(crate::serve::run(settings));
    // Work that still runs on a thread (a password hash, a file) must not delay the exit.
    runtime.shutdown_timeout(SHUTDOWN);
    ended.map(|()| ExitCode::SUCCESS)
}
