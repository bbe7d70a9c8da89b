//! `kilonova config …`: shows the effect of an operator's configuration files.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgGroup, Args, Subcommand};
use kilonova_program::config::upstream::SourceFile;
use serde_json::{Value, json};

use super::{Format, examples};
use crate::config::{Carried, Decision, Fate, carried};
use crate::failure::Failure;
use crate::operate::text;

/// Arguments of `config`.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List which options of upstream's configuration files are refused, have no effect, and are used.
    /// Exits 0 if no option is refused, 1 otherwise, 2 if a file cannot be read.
    #[command(after_help = examples::CONFIG_CHECK)]
    Check(Check),
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("files").required(true).multiple(true))]
struct Check {
    /// nova.conf of a controller or of a compute host.
    #[arg(long, value_name = "FILE", group = "files")]
    nova_conf: Option<PathBuf>,
    /// placement.conf.
    #[arg(long, value_name = "FILE", group = "files")]
    placement_conf: Option<PathBuf>,
    /// cyborg.conf.
    #[arg(long, value_name = "FILE", group = "files")]
    cyborg_conf: Option<PathBuf>,
    /// Output format.
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

pub(super) fn run(options: ConfigArgs) -> Result<ExitCode, Failure> {
    match options.command {
        Command::Check(options) => check(&options),
    }
}

fn check(options: &Check) -> Result<ExitCode, Failure> {
    let files = [
        (SourceFile::Nova, options.nova_conf.as_deref()),
        (SourceFile::Placement, options.placement_conf.as_deref()),
        (SourceFile::Cyborg, options.cyborg_conf.as_deref()),
    ];
    let files: Vec<_> =
        files.into_iter().filter_map(|(source, path)| Some((source, path?))).collect();
    let files = carried(&files)?;
    let refused = files.iter().flat_map(|file| &file.decisions);
    let refused = refused.filter(|one| matches!(one.fate, Fate::Refused(_))).count();
    match options.format {
        Format::Table => {
            let tables: Vec<String> = files.iter().map(table).collect();
            super::say(&tables.join("\n"))?;
        }
        Format::Json => {
            let files: Vec<Value> = files.iter().map(document).collect();
            super::say(&format!("{}\n", json!({"refused": refused > 0, "files": files})))?;
        }
    }
    Ok(ExitCode::from(u8::from(refused > 0)))
}

fn shown(one: &Decision) -> String {
    text::plain(format!("[{}] {}", one.group, one.option).trim_end())
}

fn table(file: &Carried) -> String {
    let mut refused = Vec::new();
    let mut unused: BTreeMap<(bool, String, &str), Vec<String>> = BTreeMap::new();
    let mut used = Vec::new();
    let mut without = 0;
    for one in &file.decisions {
        let line = one.line.map_or_else(|| "-".to_owned(), |line| line.to_string());
        match &one.fate {
            Fate::Refused(why) if one.group.is_empty() => {
                refused.push(vec![line, "-".to_owned(), text::plain(why)]);
            }
            Fate::Refused(why) => refused.push(vec![line, shown(one), text::plain(why)]),
            Fate::NoEffect { why, later } => {
                without += 1;
                let place = (!*later, text::plain(&one.group), why.as_str());
                unused.entry(place).or_default().push(text::plain(&one.option));
            }
            Fate::Used(users) => used.push(vec![line, shown(one), users.to_string()]),
        }
    }
    let mut out = format!(
        "{} ({}): {} refused, {without} without effect, {} used\n",
        text::plain(&file.path.display().to_string()),
        file.source.as_str(),
        refused.len(),
        used.len(),
    );
    if !refused.is_empty() {
        out.push_str("\nRefused; kilonova serve does not start with these options:\n");
        out.push_str(&text::table(&refused));
    }
    for (title, settled) in [
        ("\nWithout effect, because Kilonova does not have the feature yet:\n", false),
        ("\nWithout effect in Kilonova:\n", true),
    ] {
        let group = unused.iter().filter(|((is_settled, ..), _)| *is_settled == settled);
        for (at, ((_, group, why), options)) in group.enumerate() {
            if at == 0 {
                out.push_str(title);
            }
            out.push_str(&format!("  [{group}] {}\n      {why}\n", options.join(", ")));
        }
    }
    if !used.is_empty() {
        out.push_str(
            "\nUsed; kilonova-agent check validates the values that only the agent uses:\n",
        );
        out.push_str(&text::table(&used));
    }
    out
}

fn document(file: &Carried) -> Value {
    let (mut refused, mut unused, mut used) = (Vec::new(), Vec::new(), Vec::new());
    for one in &file.decisions {
        let mut row = json!({"line": one.line, "group": one.group, "option": one.option});
        match &one.fate {
            Fate::Refused(why) => {
                row["why"] = json!(why);
                refused.push(row);
            }
            Fate::NoEffect { why, later } => {
                row["why"] = json!(why);
                row["not_yet"] = json!(later);
                unused.push(row);
            }
            Fate::Used(users) => {
                row["controller"] = json!(users.has_controller());
                row["agent"] = json!(users.has_agent());
                used.push(row);
            }
        }
    }
    json!({
        "path": file.path.display().to_string(),
        "file": file.source.as_str(),
        "refused": refused,
        "no_effect": unused,
        "used": used,
    })
}
