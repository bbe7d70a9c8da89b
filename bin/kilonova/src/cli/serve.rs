//! `kilonova serve`.

use std::process::ExitCode;

use super::Serve;
use crate::config::Settings;
use crate::failure::Failure;

pub(super) fn run(options: Serve) -> Result<ExitCode, Failure> {
    let settings = Settings::read(
        options.config.as_deref(),
        options.state_dir,
        options.listen,
        options.database,
        options.nodes,
    )?;
    crate::serve::logs::start(settings.debug);
    super::runtime()?.block_on(crate::serve::run(settings))?;
    Ok(ExitCode::SUCCESS)
}
