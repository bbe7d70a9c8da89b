//! Small state files that are replaced atomically.
//!
//! They survive a crash of the process. They are not synced to disk: they describe running guests
//! and mediated devices, which do not survive a power loss either.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};

/// Replaces a file atomically. Creates its directory if necessary.
pub fn write_atomically(path: &Path, content: &[u8]) -> io::Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let scratch = path.with_extension(format!("{}-{number}.new", std::process::id()));
    let written = match std::fs::write(&scratch, content) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
            std::fs::write(&scratch, content)
        }
        other => other,
    };
    written.and_then(|()| std::fs::rename(&scratch, path)).inspect_err(|_| {
        // A partial file may exist, for instance on a full disk.
        drop(std::fs::remove_file(&scratch));
    })
}

/// Replaces a file atomically, like [`write_atomically`], and keeps the old one as `spare`, which
/// the next call overwrites. So calls create and delete no files, which avoids a slow search: to
/// create a file, a file system passes every file that was deleted within the last minute. Only for
/// files without readers during a write. `spare` is in the same directory and ends in `.new`.
pub fn write_exchanging(path: &Path, spare: &Path, content: &[u8]) -> io::Result<()> {
    let open = || std::fs::File::options().write(true).create(true).truncate(false).open(spare);
    let file = match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
            open()
        }
        other => other,
    };
    let written = file.and_then(|mut file| {
        file.write_all(content)?;
        file.set_len(content.len() as u64)
    });
    written.and_then(|()| exchange(path, spare)).inspect_err(|_| {
        drop(std::fs::remove_file(spare));
    })
}

fn exchange(path: &Path, spare: &Path) -> io::Result<()> {
    let exists = std::fs::symlink_metadata(path).is_ok_and(|found| found.is_file());
    // Not every file system can exchange.
    if exists && renameat_with(CWD, spare, CWD, path, RenameFlags::EXCHANGE).is_ok() {
        return Ok(());
    }
    std::fs::rename(spare, path)
}

/// The complete files of a directory; removes partial files that a crash left. A missing directory
/// has no files.
pub fn list_whole(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "new") {
            std::fs::remove_file(&path)?;
        } else {
            files.push(path);
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let name = |path: &PathBuf| path.file_name().map(|n| n.to_string_lossy().into_owned());
        let mut names: Vec<String> = list_whole(folder)
            .expect("the directory is readable")
            .iter()
            .filter_map(name)
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_atomically_and_its_directory_created() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let file = folder.path().join("deep/down/state");
        write_atomically(&file, b"one").expect("the file is written");
        write_atomically(&file, b"two").expect("the file is written");
        assert_eq!(std::fs::read(&file).expect("the file exists"), b"two");
        assert_eq!(names(&folder.path().join("deep/down")), ["state"]);
    }

    #[test]
    fn a_file_is_exchanged_with_its_spare() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let folder = folder.path().join("deep/down");
        let (one, other, spare) = (folder.join("one"), folder.join("other"), folder.join("s.new"));
        let write = |path: &Path, text: &str| {
            write_exchanging(path, &spare, text.as_bytes()).expect("the file is written");
            assert_eq!(std::fs::read_to_string(path).expect("the file exists"), text);
        };
        write(&one, "a long text");
        assert!(!spare.exists(), "there was no old file");
        write(&one, "short");
        assert_eq!(std::fs::read_to_string(&spare).expect("it is kept"), "a long text");
        write(&other, "a");
        assert!(!spare.exists(), "it is the new file");
        write(&one, "");
        write(&other, "b");
        assert_eq!(names(&folder), ["one", "other"]);
        assert!(!spare.exists(), "a start removes it");
        std::fs::create_dir(folder.join("in the way")).expect("the directory is created");
        let refused = write_exchanging(&folder.join("in the way"), &spare, b"a");
        refused.expect_err("a directory has the name");
        assert!(!spare.exists());
    }

    #[test]
    fn a_failed_write_leaves_nothing_behind() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let target = folder.path().join("state");
        std::fs::create_dir_all(target.join("in the way")).expect("the directory is created");
        write_atomically(&target, b"one").expect_err("a directory has the name");
        let left: Vec<_> =
            std::fs::read_dir(folder.path()).expect("the directory is read").collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn half_written_files_are_removed() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        std::fs::write(folder.path().join("state.123-4.new"), b"ha").expect("the file is written");
        std::fs::write(folder.path().join("state"), b"whole").expect("the file is written");
        assert_eq!(names(folder.path()), ["state"]);
        assert!(!folder.path().join("state.123-4.new").exists());
        assert_eq!(names(&folder.path().join("nowhere")), Vec::<String>::new());
    }
}
