//! The files of the repository that the rules read. It knows no rule.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A check that could not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {0}: {1}")]
    Read(PathBuf, std::io::Error),
    /// A program cannot be started, or what it prints cannot be read.
    #[error("cannot run {0}: {1}")]
    Run(String, String),
    /// A rule's own pattern is wrong.
    #[error(transparent)]
    Pattern(#[from] regex::Error),
}

/// One file under version control.
pub struct File {
    /// Its path from the root of the repository.
    pub path: String,
    /// Its text.
    pub text: String,
}

impl File {
    /// The crate that the file belongs to: `compute` for `crates/compute/src/lib.rs`.
    pub fn package(&self) -> Option<&str> {
        let mut parts = self.path.split('/');
        match parts.next()? {
            "crates" | "bin" => parts.next(),
            "xtask" => Some("xtask"),
            _ => None,
        }
    }

    /// The path within the crate's `src`; none for tests, benches and build scripts.
    pub fn in_src(&self) -> Option<&str> {
        let (_, inner) = self.path.split_once("/src/")?;
        self.path.ends_with(".rs").then_some(inner)
    }

    /// True for a file of the crate's `src` that only tests compile.
    pub fn is_inline_test(&self) -> bool {
        self.in_src().is_some_and(|inner| {
            inner.ends_with("tests.rs") || inner.contains("tests/") || inner.ends_with("testing.rs")
        })
    }

    /// The lines that a release compiles, with their numbers from 1: none after `#[cfg(test)] mod`.
    pub fn released(&self) -> impl Iterator<Item = (usize, &str)> {
        let end = self.text.find("#[cfg(test)]\nmod ").unwrap_or(self.text.len());
        let inline_test = self.is_inline_test();
        self.text[..end]
            .lines()
            .enumerate()
            .filter(move |_| !inline_test)
            .map(|(index, line)| (index + 1, line))
    }
}

/// All files under version control that are text.
pub struct Sources {
    /// In the order of `git ls-files`.
    pub files: Vec<File>,
}

impl Sources {
    /// Reads them from the repository that this program was built from.
    ///
    /// # Errors
    /// A repository or a file that cannot be read.
    pub fn read() -> Result<Self, Error> {
        let root = root();
        let output = Command::new("git")
            .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
            .current_dir(&root)
            .output()
            .map_err(|error| Error::Run("git ls-files".into(), error.to_string()))?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(Error::Run("git ls-files".into(), why));
        }
        let mut files = Vec::new();
        for path in String::from_utf8_lossy(&output.stdout).split('\0') {
            let on_disk = root.join(path);
            if path.is_empty() || !on_disk.is_file() {
                continue;
            }
            let bytes = std::fs::read(&on_disk).map_err(|error| Error::Read(on_disk, error))?;
            if let Ok(text) = String::from_utf8(bytes) {
                files.push(File { path: path.to_owned(), text });
            }
        }
        Ok(Self { files })
    }

    /// The Rust files of the workspace.
    pub fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.path.ends_with(".rs") && file.package().is_some())
    }
}

/// The root of the repository.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}
