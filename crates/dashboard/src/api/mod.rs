//! The pages: one file for each, with its routes, its calls to the services, and its forms.

mod actions;
mod answers;
mod bulk;
mod capacity;
mod console;
mod doctor;
mod enrolment;
mod events;
mod explain;
mod files;
mod floor;
mod form;
mod groups;
mod host;
mod images;
mod keys;
mod launch;
mod listing;
mod login;
mod networks;
mod profiles;
mod project;
mod quotas;
mod removal;
mod server;
mod servers;
mod viewer;

use std::sync::OnceLock;

use axum::Router;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{MatchedPath, RawPathParams, Request};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Redirect, Response};
use http::{HeaderMap, HeaderValue, Method, header};
use kilonova_ids::RequestId;
use kilonova_wire::mount::logged_path;
use tower_http::catch_panic::CatchPanicLayer;
use tracing::Instrument;

use crate::app::Dashboard;
use crate::app::session::Session;
use crate::error::Error;
use answers::Refusal;
pub(crate) use capacity::PERIODS;
pub(crate) use enrolment::HOURS;
pub(crate) use floor::{Choices, Colour, Floor, Group, Show, Size};
pub(crate) use groups::is_icmp;
pub(crate) use host::Found;
pub(crate) use images::FORMATS;
pub(crate) use launch::MOST_SERVERS;
pub(crate) use listing::Rows;
pub(crate) use servers::{Filters, List, May, digest};

/// The path of the pages.
pub const PATH: &str = "/dashboard";

/// Pages load nothing from elsewhere, have no inline script or style, and cannot be in another site's frame.
/// A frame contains only our own page: the console.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; \
                      frame-ancestors 'none'";

tokio::task_local! {
    /// The request of a page.
    static REQUEST: Current;
}

/// The current request, for the page of a refusal.
struct Current {
    id: RequestId,
    /// The session of the browser, once its token is known to be valid.
    session: OnceLock<Session>,
}

/// The routes, relative to [`PATH`].
pub fn routes(dashboard: Dashboard) -> Router {
    let pages = Router::new()
        .merge(login::routes())
        .merge(project::routes())
        .merge(servers::routes())
        .merge(server::routes())
        .merge(events::routes())
        .merge(actions::routes())
        .merge(bulk::routes())
        .merge(console::routes())
        .merge(launch::routes())
        .merge(floor::routes())
        .merge(host::routes())
        .merge(capacity::routes())
        .merge(enrolment::routes())
        .merge(explain::routes())
        .merge(doctor::routes())
        .merge(keys::routes())
        .merge(images::routes())
        .merge(networks::routes())
        .merge(groups::routes())
        .merge(quotas::routes())
        .merge(profiles::routes())
        .merge(files::routes())
        .fallback(|| async { Refusal(Error::NoPage) });
    around(pages).with_state(dashboard)
}

/// The layers of every page, including that of a panic.
fn around<S: Clone + Send + Sync + 'static>(pages: Router<S>) -> Router<S> {
    pages
        .layer(CatchPanicLayer::custom(|panic: Box<dyn std::any::Any + Send>| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            let why = format!("a panic: {}", text.unwrap_or("without a text"));
            Refusal(Error::Defect(why)).into_response()
        }))
        .layer(middleware::from_fn(protect))
        .layer(middleware::from_fn(identify))
}

/// Gives a request its id, which its log lines and its answer contain. Its requests to the services have
/// ids of their own.
async fn identify(
    route: Option<MatchedPath>,
    parameters: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
    next: Next,
) -> Response {
    let id = RequestId::new_v4();
    let span = tracing::info_span!(
        "request",
        id = %format_args!("req-{id}"),
        service = "dashboard",
        method = %request.method(),
        path = logged_path(route.as_ref(), parameters.as_ref()),
    );
    let current = Current { id, session: OnceLock::new() };
    let mut response = REQUEST.scope(current, next.run(request)).instrument(span).await;
    if let Ok(id) = HeaderValue::from_str(&format!("req-{id}")) {
        response.headers_mut().insert("x-openstack-request-id", id);
    }
    response
}

/// The id of the current request.
fn request_id() -> Option<String> {
    REQUEST.try_with(|current| format!("req-{}", current.id)).ok()
}

/// Records that the current request has this valid session.
fn remember(session: &Session) {
    // A second call in the same request has the same session.
    let _ = REQUEST.try_with(|current| current.session.set(session.clone()).is_ok());
}

/// The valid session of the current request, if it is known.
fn session() -> Option<Session> {
    REQUEST.try_with(|current| current.session.get().cloned()).ok().flatten()
}

/// True for a browser's request for a page: API clients accept JSON or any type, but do not name `text/html`.
pub fn asks_for_pages(method: &Method, headers: &HeaderMap) -> bool {
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    matches!(*method, Method::GET | Method::HEAD)
        && accepts.is_some_and(|accepts| {
            accepts.split(',').any(|one| one.split(';').next().map(str::trim) == Some("text/html"))
        })
}

/// Redirects a browser to the pages.
pub fn to_pages() -> Response {
    let headers = [
        (header::VARY, HeaderValue::from_static("Accept")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (headers, Redirect::to(PATH)).into_response()
}

/// Refuses forms from other sites, and adds the headers that confine a page.
async fn protect(request: Request, next: Next) -> Response {
    let mut response = match request.method() {
        &Method::GET | &Method::HEAD => next.run(request).await,
        _ if is_foreign(request.headers()) => Refusal(Error::Forged).into_response(),
        _ => next.run(request).await,
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "same-origin"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// True for a request that another site has caused, according to the browser. The secrets of forms and the cookie's
/// `SameSite` already protect against these; this check costs nothing.
fn is_foreign(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").and_then(|value| value.to_str().ok());
    site.is_some_and(|site| !matches!(site, "same-origin" | "none"))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::routing::get;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    async fn broken() -> &'static str {
        panic!("a text for the log alone")
    }

    #[tokio::test]
    async fn a_page_that_panics_is_confined_and_names_its_request() {
        let pages: Router = around(Router::new().route("/", get(broken)));
        let request = Request::get("/").body(Body::empty()).unwrap();
        let answer = pages.oneshot(request).await.unwrap();
        assert_eq!(answer.status(), 500);
        assert!(answer.headers().contains_key(header::CONTENT_SECURITY_POLICY));
        let id = answer.headers()["x-openstack-request-id"].to_str().unwrap().to_owned();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let page = String::from_utf8_lossy(&body);
        assert!(page.contains(&id) && !page.contains("for the log alone"), "{id}: {page}");
    }

    #[test]
    fn only_browsers_get_pages() {
        let asks = |accept: Option<&'static str>, method: Method| {
            let mut headers = HeaderMap::new();
            if let Some(accept) = accept {
                headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            }
            asks_for_pages(&method, &headers)
        };
        assert!(asks(Some("text/html,application/xhtml+xml,*/*;q=0.8"), Method::GET));
        assert!(asks(Some("application/xml, text/html;q=0.5"), Method::HEAD));
        for client in
            [None, Some("*/*"), Some("application/json"), Some("text/*"), Some("text/htmlx")]
        {
            assert!(!asks(client, Method::GET), "{client:?}");
        }
        assert!(!asks(Some("text/html"), Method::POST));
    }

    #[test]
    fn a_browser_tells_which_site_sends_a_form() {
        let foreign = |site: &'static str| {
            is_foreign(&HeaderMap::from_iter([(
                http::HeaderName::from_static("sec-fetch-site"),
                HeaderValue::from_static(site),
            )]))
        };
        assert!(foreign("cross-site") && foreign("same-site"));
        assert!(!foreign("same-origin") && !foreign("none") && !is_foreign(&HeaderMap::new()));
    }
}
