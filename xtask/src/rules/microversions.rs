//! The newest microversion of compute is one constant. A second `104` would hide a route or a key
//! from the version after it.

use regex::Regex;

use crate::source::{Error, Sources};

/// Literal uses of the newest microversion's minor number in released code, if there are several.
pub fn check(sources: &Sources) -> Result<Vec<String>, Error> {
    let literal = Regex::new(r"\b104\b")?;
    let mut found = Vec::new();
    for file in sources.rust().filter(|file| file.path.starts_with("crates/")) {
        for (number, line) in file.released() {
            if file.in_src().is_some() && literal.is_match(line) {
                found.push(format!("{}:{number}: a literal 104", file.path));
            }
        }
    }
    if found.len() == 1 {
        found.clear();
    }
    Ok(found)
}
