//! `kilonova serve`.

use std::process::ExitCode;
use std::time::Duration;

use super::Serve;
use crate::config::{Settings, Told};
use crate::failure::Failure;

const SHUTDOWN: Duration = Duration::from_millis(300);

pub(super) fn run(options: Serve) -> Result<ExitCode, Failure> {
    super::thrift::begin();
    let told = Told {
        state_dir: options.state_dir,
        listen: options.listen,
        database: options.database,
        nodes: options.nodes,
        node_listen: options.node_listen,
        node_names: options.node_names,
        dev: options.dev,
        log_format: options.log_format,
    };
    let settings = Settings::read(options.config.as_deref(), told)?;
    kilonova_program::logs::start(settings.debug, settings.log_format);
    let runtime = super::runtime()?;
    let ended = runtime.block_on(crate::serve::run(settings));
    // What still computes on a thread of its own (a password's hash, a file) must not hold the end.
    runtime.shutdown_timeout(SHUTDOWN);
    ended.map(|()| ExitCode::SUCCESS)
}
