//! The first request of a host without a certificate.

use kilonova_ids::HostName;
use kilonova_node_api::{Credential, Join, Refusal, Renewal};
use kilonova_pki::Token;
use reqwest::Method;

use super::{Error, Remote, with_body};

/// Requests the first certificate of a host from the control plane at `url`. Fails before sending
/// anything if the control plane's authority does not match the token.
///
/// # Errors
/// The reason why no certificate was issued.
pub async fn join(
    url: &str,
    token: &Token,
    host: &HostName,
    request: Renewal,
) -> Result<Credential, Refusal> {
    let rejected = |error: &dyn std::fmt::Display| Refusal::Rejected(error.to_string());
    let config = kilonova_pki::joining(token.authority).map_err(|error| rejected(&error))?;
    let remote = Remote::certified(url, config).map_err(|error: Error| rejected(&error))?;
    let message = Join { secret: token.secret.to_string(), host: host.to_owned(), request };
    remote.ask(with_body(remote.request(Method::POST, "/v1/join"), &message)?).await
}
