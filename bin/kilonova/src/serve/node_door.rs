//! The door for nodes on other machines: the word in the file `node.token` of the state directory,
//! as `Authorization: Bearer`. Whoever has it may speak for any host, so it belongs on compute hosts
//! alone.

use std::sync::Arc;

use axum::Router;
use http::{HeaderMap, HeaderValue, header};
use kilonova_compute::api::nodes;
use kilonova_compute::{Compute, Link};
use kilonova_wire::auth::Authentication;
use kilonova_wire::{Authenticator, Context, Fault, mount};

use crate::state::same;

/// Where nodes dial.
pub(super) const PATH: &str = "/node";

struct Door(String);

impl Authenticator for Door {
    fn authenticate<'a>(&'a self, headers: &'a HeaderMap) -> Authentication<'a> {
        Box::pin(async move {
            let given = headers
                .get(header::AUTHORIZATION)
                .and_then(|value| value.to_str().ok())
                .and_then(|value| value.strip_prefix("Bearer "));
            if given.is_some_and(|given| same(given.trim(), &self.0)) {
                return Ok(Context::default());
            }
            let mut fault = Fault::unauthorized(
                "This is for compute hosts: send the word in the control plane's node.token as \
                 Authorization: Bearer.",
            );
            fault.headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            Err(fault)
        })
    }
}

/// The routes that nodes call, behind the door.
pub(super) fn routes(compute: &Compute, token: String) -> Router {
    let routes = nodes::routes(Link(compute.clone()));
    let below = mount(routes, nodes::service(), PATH, Arc::new(Door(token)));
    Router::new().nest(PATH, below)
}
