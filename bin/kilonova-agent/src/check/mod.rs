//! `check`: whether this machine can be a compute host, with a remedy for each finding. It changes
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
    host::check(settings, &mut report);
    libvirt::check(settings, &mut report).await;
    devices::check(settings, &mut report);
    programs::check(&mut report);
    disk::check(settings, &mut report);
    control::check(settings, &mut report).await;
    report
}
