//! The pages: one file for each, with its routes, what it asks the services, and its forms.

mod actions;
mod answers;
mod console;
mod events;
mod files;
mod form;
mod launch;
mod login;
mod project;
mod server;
mod servers;
mod viewer;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Redirect, Response};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use tower_http::catch_panic::CatchPanicLayer;

use crate::app::Dashboard;
use crate::error::Error;
use answers::Refusal;
pub(crate) use servers::{Filters, List, digest};

/// Where the pages are.
pub const PATH: &str = "/dashboard";

/// Pages load nothing from elsewhere, have no script or style of their own, and are in no other site's frame.
/// The console is our own page within a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; \
                      frame-ancestors 'none'";

/// The routes, relative to [`PATH`].
pub fn routes(dashboard: Dashboard) -> Router {
    Router::new()
        .merge(login::routes())
        .merge(project::routes())
        .merge(servers::routes())
        .merge(server::routes())
        .merge(events::routes())
        .merge(actions::routes())
        .merge(console::routes())
        .merge(launch::routes())
        .merge(files::routes())
        .fallback(|| async { Refusal(Error::NoPage) })
        .layer(middleware::from_fn(protect))
        .layer(CatchPanicLayer::custom(|_: Box<dyn std::any::Any + Send>| {
            tracing::error!("a page of the dashboard failed by a panic; report it as a defect");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }))
        .with_state(dashboard)
}

/// True for a browser that asks for a page: clients of the API ask for JSON, or for anything.
pub fn asks_for_pages(method: &Method, headers: &HeaderMap) -> bool {
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    matches!(*method, Method::GET | Method::HEAD)
        && accepts.is_some_and(|accepts| {
            accepts.split(',').any(|one| one.split(';').next().map(str::trim) == Some("text/html"))
        })
}

/// Sends a browser to the pages.
pub fn to_pages() -> Response {
    let headers = [
        (header::VARY, HeaderValue::from_static("Accept")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (headers, Redirect::to(PATH)).into_response()
}

/// Refuses forms of other sites, and adds the headers that confine a page.
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

/// True for a request that a browser says another site has caused. The tokens of forms and the cookie's
/// `SameSite` protect already; this costs nothing.
fn is_foreign(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").and_then(|value| value.to_str().ok());
    site.is_some_and(|site| !matches!(site, "same-origin" | "none"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
