//! Small state files that are whole at any time.
//!
//! They survive a crash of the process. They are not synced to disk: what they speak of (running
//! guests, mediated devices) does not survive a loss of power either.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Replaces a file as a whole, making its folder if it is not there.
pub fn write_atomically(path: &Path, content: &[u8]) -> io::Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let scratch = path.with_extension(format!("{}-{number}.new", std::process::id()));
    match std::fs::write(&scratch, content) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
            std::fs::write(&scratch, content)?;
        }
        other => other?,
    }
    std::fs::rename(&scratch, path)
}
