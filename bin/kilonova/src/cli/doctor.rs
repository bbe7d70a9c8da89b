//! `kilonova doctor`.

use std::process::ExitCode;

use jiff::SignedDuration;

use super::{Doctor, Format};
use crate::doctor::{self, DoctorOptions};
use crate::failure::Failure;

pub(super) fn run(options: Doctor) -> Result<ExitCode, Failure> {
    let question = DoctorOptions {
        config: options.config,
        state_dir: options.state_dir,
        database: options.database,
        redate: options.redate,
        stuck: SignedDuration::from_secs(options.stuck_after.into()),
    };
    let mut report = super::runtime()?.block_on(doctor::examine(question));
    match options.format {
        Format::Table => super::say(&report.text())?,
        Format::Json => super::say(&format!("{}\n", report.json()))?,
    }
    match report.ended.take() {
        Some(why) => Err(why),
        None => Ok(ExitCode::from(report.exit_code(options.strict))),
    }
}
