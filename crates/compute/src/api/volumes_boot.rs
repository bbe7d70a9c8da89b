//! `/os-volumes_boot`: until 2.102 another name of `/servers`, to which older clients send requests to boot
//! servers with volumes. (Upstream: `nova/api/openstack/compute/volumes_boot.py`.)

use axum::Router;
use axum::extract::Request;
use axum::response::IntoResponse;
use kilonova_compute_app::microversions;
use kilonova_wire::refusal::Kind;
use kilonova_wire::{Fault, Microversion, Refusal};
use tower::{ServiceExt, service_fn};

use super::input;

const PATH: &str = "/v2.1/os-volumes_boot";

/// Serves [`PATH`] like `/v2.1/servers` of `current`, with the same policy.
pub(super) fn alias(current: Router) -> Router {
    // The mount's own fallback does not reach methods of a path below this one.
    let current = current.method_not_allowed_fallback(|| async {
        let why = "The method specified is not allowed for this resource.";
        Fault::from(Refusal::new(Kind::MethodNotAllowed, why)).unrouted()
    });
    let current = kilonova_wire::mount::log_nested_routes(current, super::shown);
    let alias = service_fn(move |mut request: Request| {
        let current = current.clone();
        async move {
            let version = request.extensions().get::<Microversion>().copied();
            let span = microversions::before(microversions::VOLUMES_BOOT_GONE);
            let gone = input::check_microversion(version.unwrap_or(microversions::MIN), span);
            if let Err(refusal) = gone {
                return Ok(refusal.into_response());
            }
            let uri = request.uri();
            let Some(path) = of_servers(uri.path(), uri.query()) else {
                let refusal = Refusal::not_found("The resource could not be found.");
                return Ok(Fault::from(refusal).unrouted().into_response());
            };
            match path.parse() {
                Ok(uri) => *request.uri_mut() = uri,
                Err(error) => return Ok(Refusal::internal(error).into_response()),
            }
            current.oneshot(request).await
        }
    });
    Router::new().nest_service(PATH, alias)
}

/// The path and query below `/v2.1/servers` for a path below [`PATH`]: of the list, the list with details, a server or
/// its actions. `None` for other resources of a server, which `/os-volumes_boot` does not have.
fn of_servers(path: &str, query: Option<&str>) -> Option<String> {
    let path = path.trim_matches('/');
    if !matches!(path.split_once('/'), None | Some((_, "action"))) {
        return None;
    }
    let slash = if path.is_empty() { "" } else { "/" };
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    Some(format!("/v2.1/servers{slash}{path}{query}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_servers_and_their_actions_have_another_name() {
        let of = |path| of_servers(path, Some("a=b"));
        assert_eq!(of("/").as_deref(), Some("/v2.1/servers?a=b"));
        assert_eq!(of("/detail").as_deref(), Some("/v2.1/servers/detail?a=b"));
        assert_eq!(of_servers("/x/action", None).as_deref(), Some("/v2.1/servers/x/action"));
        assert_eq!([of("/x/metadata"), of("/x/action/y"), of("/x//")], [None, None, of("/x")]);
    }
}
