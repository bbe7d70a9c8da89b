//! The list of checks, and the output of their results. A check never changes a file.

use clap::ValueEnum;

use crate::source::Sources;
use crate::tools::{self, Outcome};
use crate::{rules, source};

/// One check, in the order in which they run: the cheap ones first.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Check {
    /// The allowed dependencies between crates.
    Dependencies,
    /// HTTP stays in `api/`, SQL stays in `db/`.
    Layers,
    /// Each file opens with a description of what it owns.
    Headers,
    /// Sentences and words that the project does not use.
    Prose,
    /// Links between documents lead to files and headings.
    Links,
    /// Each Microversion bound is a named constant.
    Microversions,
    /// `cargo fmt --check`, and the syntax of the scripts.
    Format,
    /// `cargo clippy` with warnings denied.
    Clippy,
    /// `cargo deny`: licences, bans, sources and advisories.
    Deny,
}

/// Runs the checks and prints a line for each; the last line is `N passed, N failed, N skipped`.
/// Returns true if none failed.
///
/// # Errors
/// A file that cannot be read, or a program that cannot be started.
pub fn run(checks: &[Check]) -> Result<bool, source::Error> {
    let checks = if checks.is_empty() { Check::value_variants() } else { checks };
    let sources = Sources::read()?;
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for check in checks {
        for (name, outcome) in one(*check, &sources)? {
            match outcome {
                Outcome::Passed => {
                    passed += 1;
                    println!("ok: {name}");
                }
                Outcome::Skipped(reason) => {
                    skipped += 1;
                    println!("skipped: {name}: {reason}");
                }
                Outcome::Failed(findings) => {
                    failed += 1;
                    for finding in &findings {
                        println!("{finding}");
                    }
                    println!("failed: {name}: {} finding(s)", findings.len());
                }
            }
        }
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    Ok(failed == 0)
}

fn one(check: Check, sources: &Sources) -> Result<Vec<(&'static str, Outcome)>, source::Error> {
    Ok(match check {
        Check::Dependencies => {
            vec![("dependencies between crates", rules::dependencies::check(sources)?.into())]
        }
        Check::Layers => vec![
            ("no HTTP below api/", rules::layers::http(sources).into()),
            ("no SQL outside db/", rules::layers::sql(sources).into()),
        ],
        Check::Headers => vec![("files open with //!", rules::headers::check(sources).into())],
        Check::Prose => vec![("prose", rules::prose::check(sources)?.into())],
        Check::Links => vec![("links", rules::links::check(sources)?.into())],
        Check::Microversions => {
            vec![("microversions", rules::microversions::check(sources)?.into())]
        }
        Check::Format => tools::format(sources)?,
        Check::Clippy => tools::clippy()?,
        Check::Deny => tools::deny()?,
    })
}
