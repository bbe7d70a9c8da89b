//! `/kilonova/doctor`: what `kilonova doctor` finds by reading the database, each finding with its remedy.
//!
//! Checks that need the controller's machine (configuration, files, free space, secrets) are omitted.

use axum::Json;
use axum::extract::State;
use kilonova_compute_app::Compute;
use kilonova_compute_app::attention::report::examine;
use kilonova_compute_app::attention::{Finding, Level};
use kilonova_wire::Refusal;
use kilonova_wire::time::zulu;
use serde_json::{Value, json};

/// The maximum number of findings in an answer. The most severe come first.
const MOST: usize = 200;

pub(super) async fn show(State(compute): State<Compute>) -> Result<Json<Value>, Refusal> {
    let found = examine(&compute).await?;
    let area = |(name, about): &(&'static str, String)| {
        let state = found.state(name).map_or("ok", Level::as_str);
        json!({"name": name, "state": state, "about": about})
    };
    let mut findings: Vec<&Finding> = found.findings.iter().collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    let view = |finding: &&Finding| {
        json!({
            "area": finding.area,
            "level": finding.level.as_str(),
            "what": finding.what,
            "remedy": finding.remedy,
        })
    };
    Ok(Json(json!({"doctor": {
        "examined_at": zulu(found.at),
        "areas": found.areas.iter().map(area).collect::<Vec<_>>(),
        "findings": findings.iter().take(MOST).map(view).collect::<Vec<_>>(),
        "more_findings": findings.len().saturating_sub(MOST),
    }})))
}
