//! The host that a connection's client certificate names.
//!
//! Such a host may act only for itself. A connection without a certificate is not checked here: the
//! listener that accepted it applies other checks.

use axum::Extension;
use axum::extract::{RawPathParams, Request};
use axum::middleware::Next;
use axum::response::Response;
use kilonova_ids::HostName;

use crate::Refusal;

/// The host that a connection's certificate names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertifiedHost(pub HostName);

impl CertifiedHost {
    /// Refuses to act for another host.
    ///
    /// # Errors
    /// 403 that names both hosts.
    pub fn check(&self, host: &HostName) -> Result<(), Refusal> {
        if self.0 == *host {
            return Ok(());
        }
        Err(Refusal::forbidden(format!(
            "The certificate of this connection belongs to host {}, which cannot act for host {}. Set \
             [DEFAULT] host of the agent to the name under which it enrolled, or enroll it again.",
            self.0,
            host.escape_debug()
        )))
    }
}

/// Middleware: a host identified by its certificate may access only its own `{host}` routes.
///
/// # Errors
/// 403 that names both hosts.
pub async fn only_itself(
    certified: Option<Extension<CertifiedHost>>,
    params: RawPathParams,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    if let Some(Extension(certified)) = certified {
        for (name, value) in &params {
            if name == "host" {
                certified.check(&HostName::verbatim(value))?;
            }
        }
    }
    Ok(next.run(request).await)
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::Body;
    use axum::routing::get;
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn a_host_accesses_only_its_own_routes() {
        let routes = Router::new()
            .route("/hosts/{host}/x", get(|| async { "fine" }))
            .route("/clock", get(|| async { "late" }))
            .route_layer(axum::middleware::from_fn(only_itself));
        let a = CertifiedHost(HostName::verbatim("a.b"));
        for (certified, path, status) in [
            (Some(&a), "/hosts/a.b/x", 200),
            (Some(&a), "/hosts/a%2Eb/x", 200),
            (Some(&a), "/hosts/b/x", 403),
            (Some(&a), "/hosts/A.B/x", 403),
            (Some(&a), "/clock", 200),
            (None, "/hosts/b/x", 200),
        ] {
            let mut request =
                http::Request::get(path).body(Body::empty()).expect("the request is valid");
            if let Some(certified) = certified {
                request.extensions_mut().insert(certified.clone());
            }
            let answer = routes.clone().oneshot(request).await.expect("an answer");
            assert_eq!(answer.status(), status, "{path}");
        }
    }
}
