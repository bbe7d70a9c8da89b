//! The files of the repository that the rules read. This module must never know a rule.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A check that could not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {0}: {1}")]
    Read(PathBuf, std::io::Error),
    /// A program cannot be started, or its output cannot be read.
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
    /// The paths of all files, also of those that are not text, and of their folders.
    paths: BTreeSet<String>,
}

impl Sources {
    /// Reads the files from the folder that this program was built from. Without a repository there, as in a source
    /// archive, reads all files outside hidden folders, `target` and `state`.
    ///
    /// # Errors
    /// A file or a folder that cannot be read.
    pub fn read() -> Result<Self, Error> {
        let root = root();
        let paths = match tracked(&root) {
            Some(paths) => paths,
            None => {
                let mut found = Vec::new();
                walk(&root, "", &mut found)?;
                found
            }
        };
        let (mut files, mut known) = (Vec::new(), BTreeSet::new());
        for path in paths {
            let on_disk = root.join(&path);
            if !on_disk.is_file() {
                continue;
            }
            let folders = path.match_indices('/').map(|(end, _)| path[..end].to_owned());
            known.extend(folders.chain([path.clone()]));
            let bytes = std::fs::read(&on_disk).map_err(|error| Error::Read(on_disk, error))?;
            if let Ok(text) = String::from_utf8(bytes) {
                files.push(File { path, text });
            }
        }
        Ok(Self { files, paths: known })
    }

    /// True if there is a file or a folder with this path.
    pub fn exists(&self, path: &str) -> bool {
        self.paths.contains(path)
    }

    /// Sources of a test.
    #[cfg(test)]
    pub fn of(files: Vec<File>) -> Self {
        let paths = files.iter().map(|file| file.path.clone()).collect();
        Self { files, paths }
    }

    /// The Rust files of the workspace.
    pub fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.path.ends_with(".rs") && file.package().is_some())
    }
}

/// The files that git tracks or would track; `None` without a repository.
fn tracked(root: &Path) -> Option<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
        .current_dir(root)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout);
    Some(text.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
}

fn walk(root: &Path, folder: &str, found: &mut Vec<String>) -> Result<(), Error> {
    let here = root.join(folder);
    let unreadable = |error| Error::Read(here.clone(), error);
    for entry in std::fs::read_dir(&here).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        let is_folder = entry.file_type().map_err(unreadable)?.is_dir();
        if !is_folder {
            found.push(path);
        } else if !name.starts_with('.') && name != "target" && name != "state" {
            walk(root, &path, found)?;
        }
    }
    Ok(())
}

/// The root of the repository.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}
