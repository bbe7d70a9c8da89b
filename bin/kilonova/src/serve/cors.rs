//! CORS headers for pages of other sites.
//!
//! Behaves like oslo.middleware: every OPTIONS request is answered with 200 here, before
//! authentication; the CORS headers are present only if everything that the browser requests is allowed.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};

use crate::config::Cors;

/// Headers that are always allowed.
const SIMPLE: [HeaderName; 8] = [
    header::ACCEPT,
    header::ACCEPT_LANGUAGE,
    header::CONTENT_TYPE,
    header::CACHE_CONTROL,
    header::CONTENT_LANGUAGE,
    header::EXPIRES,
    header::LAST_MODIFIED,
    header::PRAGMA,
];

/// Adds the middleware around all services.
pub(super) fn around(router: Router, cors: Option<Cors>) -> Router {
    match cors {
        None => router,
        Some(cors) => router.layer(from_fn_with_state(Arc::new(cors), handle)),
    }
}

async fn handle(State(cors): State<Arc<Cors>>, request: Request, next: Next) -> Response {
    if request.method() == Method::OPTIONS {
        let headers = preflight(&cors, request.headers()).unwrap_or_default();
        return (StatusCode::OK, headers).into_response();
    }
    let allowed = request.headers().get(header::ORIGIN).and_then(|origin| allow(&cors, origin));
    let mut response = next.run(request).await;
    if let Some(allowed) = allowed {
        let headers = response.headers_mut();
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
        headers.extend(allowed);
        if let Some(names) = joined(cors.expose.iter().map(HeaderName::as_str)) {
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, names);
        }
    }
    response
}

/// The headers that allow the page's site; `None` if it is not allowed.
fn allow(cors: &Cors, origin: &HeaderValue) -> Option<HeaderMap> {
    let any = HeaderValue::from_static("*");
    let shown = match cors.origins.contains(origin) {
        true => origin.clone(),
        false => cors.origins.iter().find(|have| **have == any)?.clone(),
    };
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, shown);
    if cors.credentials {
        let yes = HeaderValue::from_static("true");
        headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, yes);
    }
    Some(headers)
}

/// The answer to a preflight request; `None` refuses it.
fn preflight(cors: &Cors, request: &HeaderMap) -> Option<HeaderMap> {
    let mut headers = allow(cors, request.get(header::ORIGIN)?)?;
    let method = request.get(header::ACCESS_CONTROL_REQUEST_METHOD)?;
    if !cors.methods.iter().any(|have| have.as_str().as_bytes() == method.as_bytes()) {
        return None;
    }
    let requested = request.get(header::ACCESS_CONTROL_REQUEST_HEADERS);
    let requested = requested.and_then(|value| value.to_str().ok()).unwrap_or_default();
    let requested: Vec<&str> =
        requested.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    let fine = |name: &str| {
        let mut known = cors.headers.iter().chain(SIMPLE.iter());
        known.any(|have| have.as_str().eq_ignore_ascii_case(name))
    };
    if !requested.iter().all(|name| fine(name)) {
        return None;
    }
    headers.insert(header::VARY, HeaderValue::from_static("Origin"));
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, method.clone());
    if let Some(names) = joined(requested.into_iter()) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names);
    }
    if cors.max_age > 0 {
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from(cors.max_age));
    }
    Some(headers)
}

fn joined<'a>(names: impl Iterator<Item = &'a str>) -> Option<HeaderValue> {
    let names: Vec<&str> = names.collect();
    if names.is_empty() {
        return None;
    }
    HeaderValue::from_str(&names.join(",")).ok()
}

#[cfg(test)]
mod tests {
    use tower::ServiceExt as _;

    use super::*;

    fn asked(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    fn cors(origin: &'static str) -> Cors {
        Cors {
            origins: vec![HeaderValue::from_static(origin)],
            credentials: true,
            expose: Vec::new(),
            max_age: 60,
            methods: vec![Method::GET],
            headers: vec![HeaderName::from_static("x-auth-token")],
        }
    }

    #[test]
    fn a_page_gets_everything_that_it_requests_or_nothing() {
        let here = cors("http://here");
        let answer = preflight(
            &here,
            &asked(&[
                ("origin", "http://here"),
                ("access-control-request-method", "GET"),
                ("access-control-request-headers", "X-Auth-Token, accept"),
            ]),
        )
        .expect("the URL is allowed");
        assert_eq!(answer["access-control-allow-origin"], "http://here");
        assert_eq!(answer["access-control-allow-methods"], "GET");
        assert_eq!(answer["access-control-allow-headers"], "X-Auth-Token,accept");
        assert_eq!(answer["access-control-allow-credentials"], "true");
        assert_eq!(answer["access-control-max-age"], "60");
        assert_eq!(answer["vary"], "Origin");
        for wrong in [
            vec![],
            vec![("origin", "http://there"), ("access-control-request-method", "GET")],
            vec![("origin", "http://here")],
            vec![("origin", "http://here"), ("access-control-request-method", "PUT")],
            vec![
                ("origin", "http://here"),
                ("access-control-request-method", "GET"),
                ("access-control-request-headers", "x-secret"),
            ],
        ] {
            assert!(preflight(&here, &asked(&wrong)).is_none(), "{wrong:?}");
        }
    }

    /// A page with a token uploads an image, and reads the id of the request.
    #[tokio::test]
    async fn the_default_policy_allows_the_headers_of_the_services() {
        let cors = Cors::of(vec![HeaderValue::from_static("http://here")]);
        let router = around(Router::new(), Some(cors));
        let ask = async |method: &str, requested: &str| {
            let request = Request::builder()
                .method(method)
                .uri("/image/v2/images/1/file")
                .header("origin", "http://here")
                .header("access-control-request-method", "PUT")
                .header("access-control-request-headers", requested)
                .body(axum::body::Body::empty())
                .expect("the request is valid");
            router.clone().oneshot(request).await.expect("the router answers")
        };
        let preflight = ask("OPTIONS", "content-type,x-auth-token").await;
        assert_eq!(preflight.status(), 200);
        let headers = preflight.headers();
        assert_eq!(headers["access-control-allow-origin"], "http://here");
        assert_eq!(headers["access-control-allow-methods"], "PUT");
        assert_eq!(headers["access-control-allow-headers"], "content-type,x-auth-token");
        for name in ["X-Subject-Token", "OpenStack-API-Version", "X-OpenStack-Nova-API-Version"] {
            let headers = ask("OPTIONS", name).await.headers().clone();
            assert_eq!(headers["access-control-allow-headers"], name);
        }
        let refused = ask("OPTIONS", "x-secret").await;
        assert!(!refused.headers().contains_key("access-control-allow-origin"));
        let shown = ask("PUT", "").await.headers()["access-control-expose-headers"].clone();
        let shown = shown.to_str().expect("the header is ASCII");
        assert!(shown.split(',').any(|name| name == "x-openstack-request-id"), "{shown}");
        assert!(shown.split(',').any(|name| name == "x-subject-token"), "{shown}");
    }

    #[test]
    fn a_star_allows_any_site() {
        let any = allow(&cors("*"), &HeaderValue::from_static("http://x"))
            .expect("the origin is allowed");
        assert_eq!(any["access-control-allow-origin"], "*");
        assert!(allow(&cors("http://a"), &HeaderValue::from_static("http://x")).is_none());
    }
}
