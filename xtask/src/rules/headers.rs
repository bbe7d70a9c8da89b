//! Each Rust file opens with `//!`, which describes what the file owns, or with an inner attribute.

use crate::source::Sources;

/// Files that do not open with `//!` or an inner attribute.
pub fn check(sources: &Sources) -> Vec<String> {
    sources
        .rust()
        .filter(|file| !file.text.starts_with("//!") && !file.text.starts_with("#!["))
        .map(|file| format!("{}:1: the file does not open with //!", file.path))
        .collect()
}
