//! Authentication of nodes by the token in the file `node.token` of the state directory, sent as
//! `Authorization: Bearer`. The token allows acting for any host, so it belongs on compute hosts only.

use std::sync::Arc;

use axum::{Extension, Router};
use http::{HeaderMap, HeaderValue, header};
use kilonova_compute_app::Compute;
use kilonova_compute_nodes::{Drain, Link, api as nodes};
use kilonova_wire::auth::Authentication;
use kilonova_wire::{Authenticator, Context, Fault, Refusal, mount};

use crate::state::same;

/// The path of the node API.
pub(super) const PATH: &str = "/node";

struct NodeToken(String);

impl Authenticator for NodeToken {
    fn authenticate<'a>(&'a self, headers: &'a HeaderMap) -> Authentication<'a> {
        Box::pin(async move {
            let given = headers
                .get(header::AUTHORIZATION)
                .and_then(|value| value.to_str().ok())
                .and_then(|value| value.strip_prefix("Bearer "));
            if given.is_some_and(|given| same(given.trim(), &self.0)) {
                return Ok(Context::default());
            }
            let refusal = Refusal::unauthorized(
                "This API is for compute hosts: send the token in the controller's node.token as \
                                 Authorization: Bearer.",
            );
            let challenge = HeaderValue::from_static("Bearer");
            Err(Fault::from(refusal).with_header(header::WWW_AUTHENTICATE, challenge))
        })
    }
}

/// The node API, authenticated by the token.
pub(super) fn routes(compute: &Compute, token: String, drain: &Drain) -> Router {
    let routes = nodes::routes(Link(compute.clone())).layer(Extension(drain.clone()));
    let below = mount(routes, nodes::service(), PATH, Arc::new(NodeToken(token)));
    Router::new().nest(PATH, below)
}
