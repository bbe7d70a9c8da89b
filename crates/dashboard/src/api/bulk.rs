//! `/actions`: one action on several servers of the list, with a confirmation before it and a result for each.
//!
//! The action is requested for each server separately, as on the server's page. If the browser
//! disconnects, the requests that were sent before are still carried out; the list of servers shows
//! their effect.

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use kilonova_compute_app::actions::ServerAction;
use kilonova_wire::Context;
use kilonova_wire::query::{Query, escaped};
use serde_json::Value;

use super::PATH;
use super::actions::request;
use super::answers::{Html, Refusal, status_and_text};
use super::form::Form;
use super::server::find;
use super::viewer::Viewer;
use crate::app::Dashboard;
use crate::app::actions::{Offer, by_slug, offered};
use crate::error::Error;
use crate::texts;
use crate::views::bulk as page;

/// The actions on several servers.
const ACTIONS: [&str; 4] = ["start", "stop", "reboot", "delete"];
/// Maximum number of servers in one request, equal to the size of a page of the list.
const MAX_SERVERS: usize = 50;

pub(super) fn routes() -> Router<Dashboard> {
    Router::new().route("/actions", get(ask).post(perform))
}

/// The actions that the user's role allows in the project, in the order of their buttons.
pub(super) fn allowed(dashboard: &Dashboard, user: &Context) -> Vec<&'static Offer> {
    let offers = ACTIONS.iter().filter_map(|slug| by_slug(slug));
    let policy = &dashboard.0.compute.policy;
    offers
        .filter(|offer| {
            let rule = offer.action.row().rules.first();
            rule.is_none_or(|rule| policy.allows_own(user, rule.name))
        })
        .collect()
}

/// Reads the action of a request, and the ids of its servers without duplicates.
fn read(query: &Query) -> Result<(&'static Offer, Vec<&str>), Error> {
    let slug = query.get("do").filter(|slug| ACTIONS.contains(slug));
    let offer = slug.and_then(by_slug).ok_or(Error::NoPage)?;
    let mut ids: Vec<&str> = Vec::new();
    for id in query.all("server") {
        if !ids.contains(&id) {
            ids.push(id);
        }
        if ids.len() > MAX_SERVERS {
            return Err(Error::Unreadable(texts::BULK_TOO_MANY));
        }
    }
    Ok((offer, ids))
}

async fn ask(
    State(dashboard): State<Dashboard>,
    viewer: Viewer,
    query: Query,
) -> Result<Response, Refusal> {
    let (offer, ids) = read(&query)?;
    let (mut able, mut unable) = (Vec::new(), Vec::new());
    for id in ids {
        match find(&dashboard, &viewer, id).await {
            Ok(server) => match is_offered(&dashboard, &viewer, &server, offer.action) {
                true => able.push(server),
                false => unable.push(server),
            },
            // The server was deleted after the list was shown, or the user never had access to it.
            Err(error) if error.is(404) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if able.is_empty() && unable.is_empty() {
        return Ok(Redirect::to(&format!("{PATH}/servers")).into_response());
    }
    let (session, able, unable) = (&viewer.session, able.as_slice(), unable.as_slice());
    Ok(Html(page::ask(&page::Question { session, offer, able, unable })).into_response())
}

fn is_offered(
    dashboard: &Dashboard,
    viewer: &Viewer,
    server: &Value,
    action: ServerAction,
) -> bool {
    let offers = offered(&dashboard.0.compute, &viewer.context, server);
    offers.iter().any(|one| one.action == action)
}

async fn perform(State(dashboard): State<Dashboard>, form: Form) -> Result<Html, Refusal> {
    let Form { viewer, fields } = form;
    let (offer, ids) = read(&fields.0)?;
    let mut results = Vec::new();
    for id in ids {
        let mut name = id.to_owned();
        let done = match find(&dashboard, &viewer, id).await {
            Ok(server) => {
                if let Some(found) = server["name"].as_str().filter(|name| !name.is_empty()) {
                    name = found.to_owned();
                }
                request(&dashboard, &viewer, offer, &server, |_| None).await
            }
            Err(error) => Err(error),
        };
        let refused = match done {
            Ok(()) => None,
            // The session has ended, so requests for the other servers would fail too.
            Err(error @ Error::NoSession) => return Err(error.into()),
            Err(error) if error.is(404) => Some(texts::SERVER_GONE.to_owned()),
            Err(error) => Some(status_and_text(&error).2),
        };
        let address = format!("{PATH}/servers/{}", escaped(id));
        results.push(page::Outcome { name, address, refused });
    }
    Ok(Html(page::results(&viewer.session, offer, &results)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_an_action_and_some_servers() {
        let query = Query::parse("do=stop&server=a&server=b&server=a");
        let (offer, ids) = read(&query).expect("it is whole");
        assert_eq!((offer.slug, ids), ("stop", vec!["a", "b"]));
        for wrong in ["do=rebuild&server=a", "server=a", "do=..&server=a"] {
            assert!(matches!(read(&Query::parse(wrong)), Err(Error::NoPage)), "{wrong}");
        }
        let many = (0..51).map(|at| format!("server={at}")).collect::<Vec<_>>().join("&");
        let many = Query::parse(&format!("do=stop&{many}"));
        assert!(matches!(read(&many), Err(Error::Unreadable(_))));
    }
}
