//! `kilonova doctor`: the ledger audit, for people and for scripts. It only reads, so it may run
//! beside a server. What needs an operator's eye without being wrong is told and ends with 0.

use std::process::ExitCode;

use kilonova_compute::attention::{self, Notice};
use kilonova_compute::audit::{self, Finding};
use kilonova_store::Store;
use serde_json::json;

use super::{Doctor, Format};
use crate::config::Settings;
use crate::failure::Failure;

pub(super) fn run(options: Doctor) -> Result<ExitCode, Failure> {
    let settings =
        Settings::read(options.config.as_deref(), options.state_dir, None, options.database, None)?;
    let url = settings.database_url()?;
    if let kilonova_store::DatabaseUrl::Sqlite(file) = &url
        && !file.exists()
    {
        return Err(Failure::Refused(format!(
            "there is no database at {}; name the state directory of a server with --state-dir",
            file.display()
        )));
    }
    let (findings, notices) = super::runtime()?.block_on(async {
        let store = Store::open(&url).await.map_err(|e| Failure::Refused(e.to_string()))?;
        let unread = |e: &dyn std::fmt::Display| {
            Failure::Refused(format!("there is no ledger that can be checked: {e}"))
        };
        let findings = audit::run(&store).await.map_err(|e| unread(&e))?;
        let notices = attention::look(&store).await.map_err(|e| unread(&e))?;
        Ok::<_, Failure>((findings, notices))
    })?;
    print(&findings, &notices, options.format);
    let broken = findings.iter().any(|finding| !finding.rows.is_empty());
    Ok(if broken { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn print(findings: &[Finding], notices: &[Notice], format: Format) {
    if format == Format::Json {
        let rules: Vec<_> =
            findings.iter().map(|f| json!({"rule": f.rule, "broken_by": f.rows})).collect();
        let clean = findings.iter().all(|f| f.rows.is_empty());
        let attention: Vec<_> =
            notices.iter().map(|n| json!({"what": n.what, "remedy": n.remedy})).collect();
        println!("{}", json!({"clean": clean, "rules": rules, "attention": attention}));
        return;
    }
    let width = findings.iter().map(|f| f.rule.len()).max().unwrap_or_default();
    for finding in findings {
        if finding.rows.is_empty() {
            println!("{:width$}  ok", finding.rule);
        } else {
            println!("{:width$}  BROKEN by {}", finding.rule, finding.rows.join(", "));
        }
    }
    if !notices.is_empty() {
        println!("\nTo look at:");
    }
    for Notice { what, remedy } in notices {
        println!("{what}\n    {remedy}");
    }
}
