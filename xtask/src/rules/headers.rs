//! Each Rust file opens with `//!`: what the file owns. Files of tests may go without.

use crate::source::Sources;

/// Files that do not open with `//!`.
pub fn check(sources: &Sources) -> Vec<String> {
    sources
        .rust()
        .filter(|file| !file.text.starts_with("//!") && !file.text.starts_with("#!["))
        .map(|file| format!("{}:1: the file does not open with //!", file.path))
        .collect()
}
