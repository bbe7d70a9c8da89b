//! `/explain`: the reasons for a server's state, and for a lack of allocation candidates.

use axum::Router;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use http::StatusCode;
use kilonova_ids::{ServerId, parse_uuid_like};
use kilonova_wire::query::{Query, escaped};

use super::PATH;
use super::answers::{Html, Refusal, forbidden, refusal_for_form};
use super::form::Fields;
use super::servers::{Filters, List, may_see_all};
use super::viewer::{OPERATES, Viewer};
use crate::app::Dashboard;
use crate::texts;
use crate::views::explain as page;

const CANDIDATES: &str = "/placement/allocation_candidates/explain";

pub(super) fn routes() -> Router<Dashboard> {
    Router::new().route("/explain", get(show)).route("/servers/{id}/explain", get(server))
}

async fn show(
    State(dashboard): State<Dashboard>,
    viewer: Viewer,
    query: Query,
) -> Result<Response, Refusal> {
    if !viewer.session.operates {
        return Err(forbidden(&dashboard.0.compute.policy, OPERATES));
    }
    let fields = Fields(query);
    let wanted = fields.text("server").unwrap_or_default();
    // A deleted server has an explanation too, although no list contains it.
    if let Some(id) = parse_uuid_like::<ServerId>(wanted) {
        return Ok(Redirect::to(&format!("{PATH}/servers/{id}/explain")).into_response());
    }
    let servers = match wanted {
        "" => None,
        name => {
            let all_projects = may_see_all(&dashboard, &viewer);
            let filters = Filters { name: name.to_owned(), all_projects, ..Filters::default() };
            Some(List::read(&dashboard, &viewer, &filters).await?)
        }
    };
    let mut status = StatusCode::OK;
    let candidates = match fields.text("query") {
        None => None,
        Some(typed) => {
            let found = match conditions(typed) {
                Ok(query) => {
                    let path = format!("{CANDIDATES}?{query}");
                    dashboard.0.cloud.get(&viewer.caller, &path).await.map_err(refusal_for_form)
                }
                Err(why) => Err(Ok((StatusCode::BAD_REQUEST, why.to_owned()))),
            };
            match found {
                Ok(found) => Some(Ok(found)),
                Err(refused) => {
                    let (refused, why) = refused?;
                    status = refused;
                    Some(Err(why))
                }
            }
        }
    };
    let page = page::page(&page::Shown {
        session: &viewer.session,
        server: wanted,
        servers: servers.as_ref(),
        query: fields.raw("query"),
        candidates: candidates.as_ref(),
    });
    Ok((status, Html(page)).into_response())
}

/// The query of a form, which has one condition per line, or `&` between the conditions.
fn conditions(typed: &str) -> Result<String, &'static str> {
    let lines = typed.split(['\n', '&']).map(|line| line.trim().trim_start_matches('?'));
    let pairs = lines.filter(|line| !line.is_empty()).map(|line| {
        let (key, value) = line.split_once('=')?;
        Some(format!("{}={}", escaped(key.trim()), escaped(value.trim())))
    });
    let pairs: Option<Vec<String>> = pairs.collect();
    Ok(pairs.ok_or(texts::QUERY_WRONG)?.join("&"))
}

async fn server(
    State(dashboard): State<Dashboard>,
    viewer: Viewer,
    Path(id): Path<String>,
) -> Result<Html, Refusal> {
    let path = format!("/compute/v2.1/kilonova/servers/{}", escaped(&id));
    let mut found = dashboard.0.cloud.get(&viewer.caller, &path).await?;
    Ok(Html(page::server(&viewer.session, &found["server"].take())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_a_query_counts() {
        let one = Ok("resources=VGPU:1&limit=5".to_owned());
        for typed in ["resources=VGPU:1\r\n\r\nlimit = 5\r\n", "?resources=VGPU:1&limit=5"] {
            assert_eq!(conditions(typed), one, "{typed:?}");
        }
        for wrong in ["resources=VGPU:1\r\nnothing", "nothing", "resources=VGPU:1&?required"] {
            assert_eq!(conditions(wrong), Err(texts::QUERY_WRONG), "{wrong:?}");
        }
    }
}
