//! `/kilonova/doctor`: what `kilonova doctor` finds by reading the database, each finding with its remedy.
//!
//! Checks that need the controller's machine (configuration, files, free space, secrets) are omitted.

use axum::Json;
use axum::extract::State;
use kilonova_compute_app::Compute;
use kilonova_compute_app::attention::report::examine;
use kilonova_compute_app::attention::{Level, Notice};
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
    let mut notices: Vec<&Notice> = found.notices.iter().collect();
    notices.sort_by_key(|notice| std::cmp::Reverse(notice.level));
    let finding = |notice: &&Notice| {
        json!({
            "area": notice.area,
            "level": notice.level.as_str(),
            "what": notice.what,
            "remedy": notice.remedy,
        })
    };
    Ok(Json(json!({"doctor": {
        "examined_at": zulu(found.at),
        "areas": found.areas.iter().map(area).collect::<Vec<_>>(),
        "findings": notices.iter().take(MOST).map(finding).collect::<Vec<_>>(),
        "more_findings": notices.len().saturating_sub(MOST),
    }})))
}
