//! The middleware around a service's routes, from the outside in:
//!
//! ```text
//!   request id, log span ─► faults in the dialect ─► token ─► microversion ─► routes
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use axum::Router;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{MatchedPath, RawPathParams, Request, State};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use kilonova_ids::RequestId;
use tracing::{Instrument, Level, Span};

use crate::accept::{self, Form};
use crate::query::check_readable;
use crate::refusal::Kind;
use crate::{Authenticator, Base, Dialect, EndsInSlash, Fault, Microversion, Negotiate, Refusal};
use crate::{base, text};

/// The description of a service.
pub struct Service {
    /// Its name in logs.
    pub name: &'static str,
    /// The dialect of its faults.
    pub dialect: Dialect,
    /// Its microversions, if any.
    pub versions: Option<Arc<dyn Negotiate>>,
    /// Returns true if a path, relative to the mount point, needs no token.
    pub public: fn(&str) -> bool,
}

struct Mounted {
    service: Service,
    prefix: String,
    auth: Arc<dyn Authenticator>,
}

/// Wraps `routes` in the middleware; `prefix` is the mount point, for links.
pub fn mount(
    routes: Router,
    service: Service,
    prefix: &str,
    auth: Arc<dyn Authenticator>,
) -> Router {
    let mounted = Arc::new(Mounted { service, prefix: prefix.to_owned(), auth });
    routes
        .fallback(|| async { no_such_path() })
        .method_not_allowed_fallback(|| async {
            let why = "The method specified is not allowed for this resource.";
            Fault::from(Refusal::new(Kind::MethodNotAllowed, why)).unrouted()
        })
        .layer(middleware::from_fn_with_state(mounted, handle))
}

fn no_such_path() -> Fault {
    Fault::from(Refusal::not_found("The resource could not be found.")).unrouted()
}

/// The route parameters whose values are logged. Others may be secrets, such as the token of a console, so only their
/// names are logged.
const LOGGED_PARAMETERS: [&str; 6] = ["id", "uuid", "host", "project", "image", "user"];

/// The path for the log: the route's template, with the ids of its objects. A path without a route is not logged,
/// because a secret may be anywhere in it.
pub fn logged_path(
    route: Option<&MatchedPath>,
    parameters: Result<&RawPathParams, &RawPathParamsRejection>,
) -> String {
    match route {
        Some(route) => with_ids(route.as_str().to_owned(), parameters),
        None => NO_ROUTE.to_owned(),
    }
}

/// The path for the log of a request without a route.
const NO_ROUTE: &str = "(no route)";

/// The template with the ids of its objects.
fn with_ids(
    template: String,
    parameters: Result<&RawPathParams, &RawPathParamsRejection>,
) -> String {
    let mut path = template;
    for (name, value) in parameters.into_iter().flatten() {
        if LOGGED_PARAMETERS.contains(&name) {
            path = path.replacen(&format!("{{{name}}}"), value, 1);
        }
    }
    path
}

/// The span of a request for which the middleware knows no route. Its path is recorded only once, because the text
/// format of the log would append a second one.
#[derive(Debug, Clone)]
struct Unnamed {
    span: Span,
    is_named: Arc<AtomicBool>,
}

impl Unnamed {
    fn new(span: &Span) -> Self {
        Self { span: span.clone(), is_named: Arc::default() }
    }

    /// Records the path for the log, unless there is one.
    fn name(&self, path: &str) {
        if !self.is_named.swap(true, Ordering::Relaxed) {
            self.span.record("path", path);
        }
    }
}

/// Makes nested routes (`Router::nest_service`) log the template of their path: the middleware of [`mount()`] is
/// outside of them and knows no route. `shown` converts a template of `routes`, which begins with the path of the
/// service, to the template that callers know.
pub fn log_nested_routes(routes: Router, shown: fn(&str) -> String) -> Router {
    let name = move |route: Option<MatchedPath>,
                     parameters: Result<RawPathParams, RawPathParamsRejection>,
                     request: Request,
                     next: Next| {
        if let (Some(unnamed), Some(route)) = (request.extensions().get::<Unnamed>(), &route) {
            unnamed.name(&with_ids(shown(route.as_str()), parameters.as_ref()));
        }
        next.run(request)
    };
    routes.layer(middleware::from_fn(name))
}

async fn handle(
    State(mounted): State<Arc<Mounted>>,
    route: Option<MatchedPath>,
    parameters: Result<RawPathParams, RawPathParamsRejection>,
    mut request: Request,
    next: Next,
) -> Response {
    let request_id: RequestId = RequestId::new_v4();
    let path = route.map(|route| with_ids(route.as_str().to_owned(), parameters.as_ref()));
    let span = tracing::info_span!(
        "request",
        id = %format_args!("req-{request_id}"),
        service = mounted.service.name,
        method = %request.method(),
        path,
    );
    let unnamed = path.is_none().then(|| Unnamed::new(&span));
    if let Some(unnamed) = &unnamed {
        request.extensions_mut().insert(unnamed.clone());
    }
    answer(mounted, request_id, request, unnamed, next).instrument(span).await
}

async fn answer(
    mounted: Arc<Mounted>,
    request_id: RequestId,
    request: Request,
    unnamed: Option<Unnamed>,
    next: Next,
) -> Response {
    let begun = Instant::now();
    let mut version = None;
    let (parts, body) = request.into_parts();
    let origin = base::origin(&parts);
    let request = Request::from_parts(parts, body);
    let dialect = mounted.service.dialect;
    let form = match dialect {
        Dialect::Placement => accept::placement_form(request.headers()),
        Dialect::Image => accept::webob_form(request.headers()),
        _ => Form::Json,
    };
    // Keystone routes before it authenticates; the other services authenticate first.
    let missing = unnamed.is_some() && dialect == Dialect::Identity;
    let admitted = match missing && !(mounted.service.public)(request.uri().path()) {
        true => Err(no_such_path()),
        false => admit(&mounted, request_id, request, &mut version).await,
    };
    let mut response = match admitted {
        Ok(request) => next.run(request).await,
        Err(fault) => fault.into_response(),
    };
    if let Some(unnamed) = unnamed {
        unnamed.name(NO_ROUTE);
    }
    let request_id = format!("req-{request_id}");
    if let Some(mut fault) = response.extensions_mut().remove::<Fault>() {
        text::tidy(&mut fault.refusal.message);
        log(&fault);
        let status = fault.status();
        let code_shown = version.is_some_and(|v| v >= Microversion(1, 23));
        let mut written = match form {
            Form::Json => {
                let body = dialect.body(&fault, &request_id, code_shown);
                (status, axum::Json(body)).into_response()
            }
            Form::Html => (status, Html(dialect.written(&fault, true))).into_response(),
            Form::Plain => (status, dialect.written(&fault, false)).into_response(),
        };
        fault.write_headers(written.headers_mut());
        complete(written.headers_mut(), &origin);
        if let Some(allow) = response.headers().get(header::ALLOW) {
            written.headers_mut().insert(header::ALLOW, allow.clone());
        }
        response = written;
    }
    let headers = response.headers_mut();
    if let Some(versions) = &mounted.service.versions {
        versions.stamp(version, headers);
    }
    if let Ok(value) = HeaderValue::from_str(&request_id) {
        headers.insert("x-openstack-request-id", value.clone());
        if mounted.service.dialect == Dialect::Compute {
            headers.insert("x-compute-request-id", value);
        }
    }
    tracing::debug!(
        status = response.status().as_u16(),
        micros = begun.elapsed().as_micros() as u64,
        "answered"
    );
    response
}

async fn admit(
    mounted: &Mounted,
    request_id: RequestId,
    request: Request,
    version: &mut Option<Microversion>,
) -> Result<Request, Fault> {
    let (mut parts, body) = request.into_parts();
    check_readable(&parts.uri)?;
    let base = Base::of(&parts, &mounted.prefix);
    parts.extensions.insert(base);
    let public = (mounted.service.public)(parts.uri.path());
    // A request for one image with an empty id must not reach the collection or delete it.
    if mounted.service.dialect == Dialect::Image
        && !public
        && parts.extensions.get::<EndsInSlash>().is_some()
    {
        return Err(no_such_path());
    }
    if !public {
        let mut context = mounted.auth.authenticate(&parts.headers).await?;
        context.request_id = Some(request_id);
        parts.extensions.insert(context);
    }
    if let Some(versions) = &mounted.service.versions {
        let chosen = versions.negotiate(&parts.headers)?;
        *version = Some(chosen);
        parts.extensions.insert(chosen);
    }
    Ok(Request::from_parts(parts, body))
}

/// Adds the origin to the path in `WWW-Authenticate: Keystone uri="/identity/v3"`: the code that
/// refuses a request does not know the URL that the caller used.
fn complete(headers: &mut HeaderMap, origin: &str) {
    const BEGIN: &str = "Keystone uri=\"";
    let challenge = headers.get(header::WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
    let Some(path) = challenge.and_then(|value| value.strip_prefix(BEGIN)) else { return };
    if path.starts_with('/')
        && let Ok(whole) = HeaderValue::try_from(format!("{BEGIN}{origin}{path}"))
    {
        headers.insert(header::WWW_AUTHENTICATE, whole);
    }
}

/// The log level of a fault. Only unexpected server errors are logged as errors: a missing feature
/// (501) is logged as information, and overload, an unavailable dependency or full storage as a
/// warning.
fn level(status: StatusCode) -> Level {
    match status {
        StatusCode::NOT_IMPLEMENTED => Level::INFO,
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::INSUFFICIENT_STORAGE => Level::WARN,
        other if other.is_server_error() => Level::ERROR,
        _ => Level::INFO,
    }
}

fn log(fault: &Fault) {
    let mut message = fault.refusal.logged().to_owned();
    text::tidy(&mut message);
    let cause = fault.refusal.cause().unwrap_or_default();
    let status = fault.status().as_u16();
    match level(fault.status()) {
        Level::ERROR => tracing::error!(status, cause, "{message}"),
        Level::WARN => tracing::warn!(status, cause, "{message}"),
        _ => tracing::info!(status, cause, "{message}"),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::routing::get;
    use tower::ServiceExt;

    use super::*;

    /// The logged path of a request.
    async fn logged(path: &str) -> String {
        async fn log(
            route: Option<MatchedPath>,
            parameters: Result<RawPathParams, RawPathParamsRejection>,
            _: Request,
            _: Next,
        ) -> String {
            logged_path(route.as_ref(), parameters.as_ref())
        }
        let inner = Router::new()
            .route("/v2.1/servers/{id}/tags/{tag}", get(|| async {}))
            .route("/v2.1/os-console-auth-tokens/{token}", get(|| async {}))
            .fallback(|| async {})
            .layer(middleware::from_fn(log));
        let routes: Router = Router::new().nest("/compute", inner.clone()).fallback_service(inner);
        let request = Request::get(path).body(Body::empty()).expect("the request is valid");
        let answer = routes.oneshot(request).await.expect("the router is infallible");
        let body = axum::body::to_bytes(answer.into_body(), 1024).await.expect("the body is read");
        String::from_utf8(body.to_vec()).expect("the path is text")
    }

    #[tokio::test]
    async fn the_log_has_the_ids_of_a_path_and_no_secret() {
        for (path, expected) in [
            ("/compute/v2.1/servers/7b1e/tags/x", "/compute/v2.1/servers/7b1e/tags/{tag}"),
            ("/v2.1/servers/7b1e/tags/x?token=s3cret", "/v2.1/servers/7b1e/tags/{tag}"),
            ("/v2.1/os-console-auth-tokens/s3cret", "/v2.1/os-console-auth-tokens/{token}"),
            (
                "/compute/v2.1/os-console-auth-tokens/s3cret",
                "/compute/v2.1/os-console-auth-tokens/{token}",
            ),
            ("/compute/v2.1/os-console-auth-tokens/s3cret/x", "(no route)"),
            ("/v2.1/s3cret", "(no route)"),
        ] {
            assert_eq!(logged(path).await, expected, "{path}");
        }
    }

    #[test]
    fn callers_cannot_fill_the_log_with_errors() {
        for (status, expected) in [
            (400, Level::INFO),
            (404, Level::INFO),
            (501, Level::INFO),
            (503, Level::WARN),
            (507, Level::WARN),
            (500, Level::ERROR),
            (504, Level::ERROR),
        ] {
            let status = StatusCode::from_u16(status).expect("the status is valid");
            assert_eq!(level(status), expected, "{status}");
        }
    }
}
