//! `check`: whether this machine can be a compute host, with a remedy for each problem. It changes
//! nothing.

mod control;
mod devices;
mod disk;
mod host;
mod libvirt;
mod programs;
mod report;

use crate::settings::Settings;
pub use control::ahead;
pub use report::Report;

/// Runs all checks.
pub async fn check(settings: &Settings) -> Report {
    let mut report = Report::default();
    host::look(settings, &mut report);
    libvirt::look_at(settings, &mut report).await;
    devices::look(settings, &mut report);
    programs::look(&mut report);
    disk::look(settings, &mut report);
    control::look(settings, &mut report).await;
    report
}
