//! `/capacity`: how many more servers of each flavor fit, how many devices are unused, partly used or reserved, and the
//! past usage; with `flavor`, how to make room for more servers of that flavor.

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use kilonova_wire::query::{Query, escaped};

use super::answers::{Html, Refusal};
use super::viewer::Viewer;
use crate::app::Dashboard;
use crate::views;

/// The periods of plots.
pub(crate) const PERIODS: [&str; 3] = ["day", "week", "month"];

pub(super) fn routes() -> Router<Dashboard> {
    Router::new().route("/capacity", get(show))
}

async fn show(
    State(dashboard): State<Dashboard>,
    viewer: Viewer,
    query: Query,
) -> Result<Html, Refusal> {
    let mut path = "/compute/v2.1/kilonova/capacity".to_owned();
    let flavor = query.get("flavor").filter(|flavor| !flavor.is_empty());
    if let Some(flavor) = flavor {
        path.push_str(&format!("?flavor={}", escaped(flavor)));
    }
    let mut found = dashboard.0.cloud.get(&viewer.caller, &path).await?;
    let period =
        query.get("period").filter(|period| PERIODS.contains(period)).unwrap_or(PERIODS[0]);
    // With a flavor the page is about that flavor alone.
    let usage = match flavor {
        Some(_) => None,
        None => {
            let path = format!("/compute/v2.1/kilonova/usage?period={period}");
            Some(dashboard.0.cloud.get(&viewer.caller, &path).await?["usage"].take())
        }
    };
    let capacity = found["capacity"].take();
    Ok(Html(views::capacity::page(&viewer.session, &capacity, usage.as_ref())))
}
