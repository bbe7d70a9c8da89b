//! sysfs as this crate uses it: small text files, directories and links below one root.
//!
//! Paths are relative to the root (`bus/pci/devices/0000:84:00.0/vendor`), so a fixture directory
//! or a simulation can replace `/sys`.

use std::io;
use std::path::{Path, PathBuf};

/// The operations that discovery and mdev handling need.
///
/// They block: a write to `create` returns when the kernel has created the device.
pub trait Sysfs: Send + Sync + 'static {
    /// Content of a file, without the trailing line end.
    fn read(&self, path: &str) -> io::Result<String>;
    /// The first bytes of a binary file.
    fn read_bytes(&self, path: &str, most: usize) -> io::Result<Vec<u8>> {
        let mut bytes = self.read(path)?.into_bytes();
        bytes.truncate(most);
        Ok(bytes)
    }
    /// The names in a directory, sorted.
    fn list(&self, path: &str) -> io::Result<Vec<String>>;
    /// Writes a value to an attribute.
    fn write(&self, path: &str, value: &str) -> io::Result<()>;
    /// True if the path exists.
    fn exists(&self, path: &str) -> bool;
    /// The path with all links resolved, still relative to the root.
    fn real(&self, path: &str) -> io::Result<String>;
}

/// A directory on disk: `/sys`, or a fixture.
#[derive(Debug, Clone)]
pub struct Directory(pub PathBuf);

impl Directory {
    fn at(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }
}

impl Sysfs for Directory {
    fn read(&self, path: &str) -> io::Result<String> {
        std::fs::read_to_string(self.at(path)).map(|text| text.trim_end().to_owned())
    }

    fn read_bytes(&self, path: &str, most: usize) -> io::Result<Vec<u8>> {
        use std::io::Read;
        let mut bytes = Vec::new();
        std::fs::File::open(self.at(path))?.take(most as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let mut names = std::fs::read_dir(self.at(path))?
            .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
            .collect::<io::Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    }

    fn write(&self, path: &str, value: &str) -> io::Result<()> {
        use std::io::Write;
        let mut file =
            std::fs::OpenOptions::new().write(true).truncate(true).open(self.at(path))?;
        file.write_all(value.as_bytes())
    }

    fn exists(&self, path: &str) -> bool {
        self.at(path).exists()
    }

    fn real(&self, path: &str) -> io::Result<String> {
        let root = self.0.canonicalize()?;
        let real = self.at(path).canonicalize()?;
        let below = real.strip_prefix(&root).map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{path} leads outside of sysfs"))
        })?;
        Ok(text(below))
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
