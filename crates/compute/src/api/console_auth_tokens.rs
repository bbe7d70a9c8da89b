//! `/os-console-auth-tokens/{token}`: the target of a console token, for operators' own proxies.
//!
//! Hosts open no ports for consoles, so such a proxy connects to the websocket of this process, like every other
//! client.

use axum::Json;
use axum::extract::{Path, State};
use kilonova_access::{Caller, Routes, get};
use kilonova_compute_app::{Compute, consoles, microversions};
use kilonova_wire::{Microversion, Refusal};
use serde_json::{Value, json};

use super::links::Base;

pub(super) fn routes() -> Routes<Compute> {
    Routes::new().route(
        "/v2.1/os-console-auth-tokens/{token}",
        [get("os_compute_api:os-console-auth-tokens", show)],
    )
}

async fn show(
    State(compute): State<Compute>,
    _: Caller,
    version: Microversion,
    base: Base,
    Path(token): Path<String>,
) -> Result<Json<Value>, Refusal> {
    if version < microversions::CONSOLE_AUTH_TOKENS {
        return Err(Refusal::bad_request(
            "The server could not comply with the request since it is either malformed or otherwise \
             incorrect.",
        ));
    }
    let found = consoles::valid(&compute, &token).await?;
    let found = found.ok_or_else(|| Refusal::not_found("Token not found"))?;
    let (host, port) = address(base.cloud());
    Ok(Json(json!({"console": {
        "instance_uuid": found.server,
        "host": host,
        "port": port,
        "internal_access_path": null,
    }})))
}

/// The host and the port of a URL.
fn address(root: &str) -> (&str, u16) {
    let (scheme, rest) = root.split_once("://").unwrap_or(("http", root));
    let authority = rest.split('/').next().unwrap_or_default();
    let usual = if scheme == "https" { 443 } else { 80 };
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().unwrap_or(usual)),
        _ => (authority, usual),
    };
    (host.trim_start_matches('[').trim_end_matches(']'), port)
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn an_address_has_a_port() {
        assert_eq!(address("http://cloud:8774/x"), ("cloud", 8774));
        assert_eq!(address("https://cloud"), ("cloud", 443));
        assert_eq!(address("http://[::1]"), ("::1", 80));
        assert_eq!(address("http://[::1]:8774"), ("::1", 8774));
    }
}
