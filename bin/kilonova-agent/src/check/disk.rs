//! Checks that the agent's directories are writable, and their free space.

use std::path::Path;

use super::Report;
use crate::facts;
use crate::settings::Settings;

const GIB: u64 = 1024 * 1024 * 1024;
/// The space that the agent needs for its state.
const STATE_SPACE: u64 = 64 * 1024 * 1024;

pub(super) fn check(settings: &Settings, report: &mut Report) {
    folder("state", &settings.state_dir, STATE_SPACE, report);
    folder("instances", &settings.files.instances_path, 5 * GIB, report);
}

fn folder(area: &'static str, folder: &Path, room: u64, report: &mut Report) {
    let shown = folder.display();
    let there = folder.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let allowed =
        rustix::fs::access(there, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK);
    if let Err(error) = allowed {
        return report.wrong(
            area,
            format!("cannot write to {shown}: {error}"),
            "run the agent as root, and check that the file system is not read-only",
        );
    }
    match facts::space(folder) {
        Err(error) => {
            report.wrong(area, error.to_string(), "check that the file system is mounted")
        }
        Ok(space) if space.free < STATE_SPACE => report.wrong(
            area,
            format!("{shown} is full: {} MiB free", space.free / 1024 / 1024),
            "free up space; guests keep running, but nothing new can start",
        ),
        Ok(space) if space.free < room => report.warn(
            area,
            format!("{shown} has {} MiB free", space.free / 1024 / 1024),
            "free up space, or use a larger disk with [DEFAULT] instances_path",
        ),
        Ok(space) => report
            .ok(area, format!("{shown}, {} of {} GiB free", space.free / GIB, space.total / GIB)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unwritable_directory_is_an_error_and_low_space_a_warning() {
        let mut report = Report::default();
        folder("state", Path::new("/proc/nothing"), 0, &mut report);
        assert_eq!(report.exit_code(), 1, "{}", report.text());
        let there = tempfile::tempdir().expect("a temporary directory is created");
        let mut report = Report::default();
        folder("state", there.path(), u64::MAX, &mut report);
        assert!(report.exit_code() == 0 && report.text().contains("WARNING"), "{}", report.text());
    }
}
