//! `kilonova serve`.

use std::process::ExitCode;
use std::time::Duration;

use super::Serve;
use crate::config::Settings;
use crate::failure::Failure;

const SHUTDOWN: Duration = Duration::from_millis(300);

pub(super) fn run(options: Serve) -> Result<ExitCode, Failure> {
    let settings = Settings::read(
        options.config.as_deref(),
        options.state_dir,
        options.listen,
        options.database,
        options.nodes,
    )?;
    crate::serve::logs::start(settings.debug);
    let runtime = super::runtime()?;
    let ended = runtime.block_on(crate::serve::run(settings));
    // What still computes on a thread of its own (a password's hash, a file) must not hold the end.
    runtime.shutdown_timeout(SHUTDOWN);
    ended.map(|()| ExitCode::SUCCESS)
}
