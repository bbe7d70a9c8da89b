//! The first word of a host that has no certificate yet.

use kilonova_node_api::{Credential, Join, Refusal, Renewal};
use kilonova_pki::Token;
use reqwest::Method;

use super::{Error, Remote, with_body};

/// Asks the control plane at `url` for the first certificate of a host. It is spoken to only if its
/// authority is the one that the token names.
///
/// # Errors
/// When there is none to be had, in a sentence.
pub async fn join(
    url: &str,
    token: &Token,
    host: &str,
    request: Renewal,
) -> Result<Credential, Refusal> {
    let rejected = |error: &dyn std::fmt::Display| Refusal::Rejected(error.to_string());
    let config = kilonova_pki::joining(token.authority).map_err(|error| rejected(&error))?;
    let remote = Remote::certified(url, config).map_err(|error: Error| rejected(&error))?;
    let message = Join { secret: token.secret.to_string(), host: host.to_owned(), request };
    remote.ask(with_body(remote.request(Method::POST, "/v1/join"), &message)?).await
}
