//! Checks who else can read or write secrets: the modes of the state directory, its files, and of a
//! configuration file with a password.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use kilonova_compute_app::attention::Level;

use super::Report;
use super::configuration::Locations;
use crate::config;

const AREA: &str = "files";
/// Mode bits of others. Subdirectories contain images and simulated hosts, but no secrets.
const READ: u32 = 0o044;
const WRITE: u32 = 0o022;
const ENTER: u32 = 0o011;

pub(super) fn examine(place: &Locations, report: &mut Report) {
    report.area(AREA, "only the owner can read or change secrets");
    if let Some(file) = &place.config
        && config::holds_secrets(file)
        && let Some(mode) = mode(file)
        && mode & READ != 0
    {
        let what =
            format!("{} contains a password, and others can read it ({mode:04o})", shown(file));
        report.find(AREA, Level::Warning, what, format!("chmod 600 {}", shown(file)));
    }
    let Some(folder) = mode(&place.state_dir) else {
        // With PostgreSQL, a controller on another machine may have the directory.
        report.area(AREA, format!("no {} on this machine", shown(&place.state_dir)));
        return;
    };
    if folder & WRITE != 0 {
        let what = format!(
            "others can create files in the state directory {} ({folder:04o})",
            shown(&place.state_dir)
        );
        report.find(AREA, Level::Error, what, format!("chmod 700 {}", shown(&place.state_dir)));
    }
    if folder & ENTER == 0 {
        return;
    }
    let Ok(entries) = std::fs::read_dir(&place.state_dir) else { return };
    let mut open: Vec<String> = Vec::new();
    for entry in entries.flatten() {
        let path = entry.path();
        // The lock file is empty.
        let counts = path.is_file() && path.file_name().is_some_and(|name| name != "lock");
        if counts && mode(&path).is_some_and(|mode| mode & (READ | WRITE) != 0) {
            open.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    if open.is_empty() {
        return;
    }
    open.sort();
    let what = format!(
        "others can read {} in the state directory {} ({folder:04o})",
        open.join(", "),
        shown(&place.state_dir)
    );
    report.find(AREA, Level::Warning, what, format!("chmod 700 {}", shown(&place.state_dir)));
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn mode(path: &Path) -> Option<u32> {
    std::fs::metadata(path).ok().map(|found| found.permissions().mode() & 0o7777)
}

#[cfg(test)]
mod tests {
    use kilonova_store::DatabaseUrl;

    use super::*;

    fn found(folder: &Path, config: Option<&Path>) -> Vec<(Level, String)> {
        let place = Locations {
            config: config.map(Path::to_owned),
            state_dir: folder.to_owned(),
            named: true,
            database: DatabaseUrl::Sqlite(folder.join("kilonova.db")),
            settings: None,
        };
        let mut report = Report::default();
        examine(&place, &mut report);
        report.findings.into_iter().map(|one| (one.level, one.what + "|" + &one.remedy)).collect()
    }

    #[test]
    fn files_that_others_can_read_are_reported_with_a_remedy() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let set = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
                .expect("the file attributes are set");
        };
        for name in ["openrc", "kilonova.db", "lock"] {
            std::fs::write(folder.path().join(name), "x").expect("the file is written");
        }
        set(&folder.path().join("openrc"), 0o600);
        set(&folder.path().join("kilonova.db"), 0o644);
        set(folder.path(), 0o700);
        assert_eq!(found(folder.path(), None), []);
        set(folder.path(), 0o755);
        let findings = found(folder.path(), None);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].1.contains("can read kilonova.db in"), "{findings:?}");
        assert!(findings[0].1.contains("chmod 700"), "{findings:?}");
        set(folder.path(), 0o777);
        assert_eq!(found(folder.path(), None)[0].0, Level::Error);
        set(folder.path(), 0o700);
        let config = folder.path().join("k.conf");
        std::fs::write(&config, "[nova]\npassword = x\n").expect("the file is written");
        set(&config, 0o640);
        assert!(found(folder.path(), Some(&config))[0].1.contains("contains a password"));
        std::fs::write(&config, "[DEFAULT]\ndebug = true\n").expect("the file is written");
        assert_eq!(found(folder.path(), Some(&config)), []);
    }
}
