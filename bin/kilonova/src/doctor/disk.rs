//! Free disk space, and sizes and ages of files.

use std::path::Path;
use std::time::SystemTime;

const MIB: f64 = 1024.0 * 1024.0;

/// Free and total bytes of the file system of a path.
pub fn room(path: &Path) -> Option<(u64, u64)> {
    let found = rustix::fs::statvfs(path).ok()?;
    let block = found.f_frsize;
    Some((found.f_bavail.saturating_mul(block), found.f_blocks.saturating_mul(block)))
}

/// The size of a file, and the seconds since it was last modified.
pub fn file(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::metadata(path).ok()?;
    let age = SystemTime::now().duration_since(found.modified().ok()?).unwrap_or_default();
    Some((found.len(), age.as_secs()))
}

/// `12 KiB`, `12.3 MiB`, `4.5 GiB`.
pub fn shown(bytes: u64) -> String {
    let mib = bytes as f64 / MIB;
    if mib < 1.0 {
        return format!("{} KiB", bytes.div_ceil(1024));
    }
    if mib < 1024.0 { format!("{mib:.1} MiB") } else { format!("{:.1} GiB", mib / 1024.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_has_free_space_and_a_file_a_size() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let (free, all) = room(folder.path()).expect("the space is readable");
        assert!(free <= all && all > 0);
        std::fs::write(folder.path().join("a"), [0; 10]).expect("the file is written");
        let (size, age) = file(&folder.path().join("a")).expect("the file exists");
        assert!(size == 10 && age < 60);
        assert_eq!(file(&folder.path().join("b")), None);
        assert_eq!(shown(4097), "5 KiB");
        assert_eq!((shown(1536 * 1024), shown(5 << 30)), ("1.5 MiB".into(), "5.0 GiB".into()));
    }
}
