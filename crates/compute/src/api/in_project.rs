//! Paths with the caller's project after the version (`/v2.1/PROJECT/servers`), which catalog
//! endpoints have used since Nova's first API. They reach the same operations as paths without a project.
//!
//! [`reached_in_project`] removes the project from the path before routing. As in Nova
//! (`nova/api/openstack/wsgi.py`), [`check`] compares it with the caller's project after the token
//! is validated.

use axum::Router;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::Uri;
use kilonova_wire::{Context, Refusal};
use tower::{ServiceExt, service_fn};

/// The project in the path.
#[derive(Debug, Clone)]
pub(super) struct InProject(pub String);

/// Wraps `mounted` so that it also answers paths with a project.
pub fn reached_in_project(mounted: Router) -> Router {
    Router::new().fallback_service(service_fn(move |mut request: Request| {
        let mounted = mounted.clone();
        if let Some((uri, project)) = split(request.uri()) {
            *request.uri_mut() = uri;
            request.extensions_mut().insert(InProject(project));
        }
        mounted.oneshot(request)
    }))
}

/// The path without the project, and the project; `None` if the path contains no project. A project's id consists of
/// hexadecimal digits and hyphens, as in Nova's routes; no resource has such a name.
fn split(uri: &Uri) -> Option<(Uri, String)> {
    let whole = uri.path_and_query()?.as_str();
    let (version, rest) = ["/v2.1/", "/v2/"]
        .iter()
        .find_map(|version| Some((*version, whole.strip_prefix(version)?)))?;
    let (project, rest) = rest.split_once('/')?;
    let is_id = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-');
    if project.is_empty() || !project.bytes().all(is_id) {
        return None;
    }
    let uri = format!("{version}{rest}").parse().ok()?;
    Some((uri, project.to_owned()))
}

/// Refuses a path that contains a project other than the caller's.
pub(super) async fn check(request: Request, next: Next) -> Response {
    let extensions = request.extensions();
    if let Some(InProject(named)) = extensions.get()
        && let Some(own) = extensions.get::<Context>().map(|context| &context.project_id)
        && named != own
    {
        return Refusal::bad_request(format!(
            "Malformed request URL: URL's project_id '{named}' doesn't match Context's project_id '{own}'"
        ))
        .into_response();
    }
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_project_is_taken_out_of_the_path() {
        let of = |path: &str| {
            let (uri, project) = split(&path.parse().expect("the path is valid"))?;
            Some((uri.to_string(), project))
        };
        let found = |path: &str, project: &str| Some((path.to_owned(), project.to_owned()));
        assert_eq!(of("/v2.1/0a-f/servers?limit=1"), found("/v2.1/servers?limit=1", "0a-f"));
        assert_eq!(of("/v2/0a/servers/1"), found("/v2/servers/1", "0a"));
        for path in ["/v2.1/servers/0a", "/v2.1/0a", "/v2.1//servers", "/v2.1/0A/servers", "/0a/x"]
        {
            assert_eq!(of(path), None, "{path}");
        }
    }
}
