//! The checks that other programs run: rustfmt, clippy, cargo-deny, bash and Python.

use std::process::Command;

use crate::source::{Error, Sources, root};

/// The result of one check.
pub enum Outcome {
    /// Nothing to report.
    Passed,
    /// The reason why the check did not run.
    Skipped(String),
    /// The findings, one per line.
    Failed(Vec<String>),
}

impl From<Vec<String>> for Outcome {
    fn from(findings: Vec<String>) -> Self {
        if findings.is_empty() { Self::Passed } else { Self::Failed(findings) }
    }
}

/// Formatting of the Rust code and the syntax of the scripts.
pub fn format(sources: &Sources) -> Result<Vec<(&'static str, Outcome)>, Error> {
    let mut scripts = Vec::new();
    for file in &sources.files {
        let interpreter = match file.text.lines().next() {
            Some("#!/usr/bin/env bash" | "#!/bin/bash") => "bash",
            Some("#!/bin/sh") => "sh",
            _ if file.path.ends_with(".sh") => "bash",
            _ => continue,
        };
        if let Outcome::Failed(findings) = command(interpreter, &["-n", &file.path])? {
            scripts.extend(findings);
        }
    }
    Ok(vec![
        ("formatting", command("cargo", &["fmt", "--all", "--check"])?),
        ("syntax of shell scripts", scripts.into()),
        (
            "syntax of Python scripts",
            command("python3", &["-m", "compileall", "-q", "scripts", "lab"])?,
        ),
    ])
}

/// Clippy over every target, with warnings denied.
pub fn clippy() -> Result<Vec<(&'static str, Outcome)>, Error> {
    let arguments = ["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
    Ok(vec![("clippy, warnings denied", command("cargo", &arguments)?)])
}

/// The dependencies, by scripts/deny.sh. Without an advisory database, the check of the advisories
/// is skipped.
pub fn deny() -> Result<Vec<(&'static str, Outcome)>, Error> {
    let settled = command("scripts/deny.sh", &["settled"])?;
    let advisories = match command("scripts/deny.sh", &["reach"])? {
        Outcome::Failed(reason) => Outcome::Skipped(reason.join(" ")),
        Outcome::Passed | Outcome::Skipped(_) => command("scripts/deny.sh", &["advisories"])?,
    };
    Ok(vec![("licences, bans and sources", settled), ("advisories", advisories)])
}

fn command(program: &str, arguments: &[&str]) -> Result<Outcome, Error> {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(root())
        .output()
        .map_err(|error| Error::Run(program.into(), error.to_string()))?;
    if output.status.success() {
        return Ok(Outcome::Passed);
    }
    let mut lines: Vec<String> = [&output.stdout, &output.stderr]
        .into_iter()
        .flat_map(|stream| {
            String::from_utf8_lossy(stream).lines().map(str::to_owned).collect::<Vec<_>>()
        })
        .filter(|line| !line.trim().is_empty())
        .collect();
    lines.truncate(200);
    Ok(Outcome::Failed(lines))
}
