//! The routes for operators, within the compute API. Administrators only.
//!
//! ```text
//! POST   /v2.1/kilonova/enrollments          {"enrollment": {"host": …, "valid": seconds,
//!                                             "replace": false}}
//! GET    /v2.1/kilonova/enrollments
//! DELETE /v2.1/kilonova/enrollments?host=none   revokes the join tokens that name no host
//! DELETE /v2.1/kilonova/enrollments/{host}   revokes its certificates and join tokens
//! ```
//!
//! Without `host=none`, the third is refused: it is also what the fourth becomes with an empty name.

use axum::extract::{Path, State};
use axum::{Json, Router};
use http::StatusCode;
use jiff::Timestamp;
use kilonova_access::{Enforcer, Operation, Routes, delete, get, post};
use kilonova_ids::HostName;
use kilonova_wire::query::Query;
use kilonova_wire::time::{self, zulu};
use kilonova_wire::{JsonBody, Refusal};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Enrollment;
use crate::app::{revoke, tokens};
use crate::db::certificates::IssuedCertificate;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenRequestBody {
    enrollment: TokenRequest,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenRequest {
    #[serde(default)]
    host: Option<HostName>,
    valid: i64,
    #[serde(default)]
    replace: bool,
}

/// The routes, checked by the compute service's policy. Without a listener for hosts they return an
/// error that says so.
pub fn operator_routes(enrollment: Option<Enrollment>, policy: &Enforcer) -> Router {
    table().behind(policy).with_state(Service(enrollment))
}

/// All operations with their policy rules.
pub fn operations() -> Vec<Operation> {
    table().operations()
}

fn table() -> Routes<Service> {
    Routes::new()
        .route(
            "/v2.1/kilonova/enrollments",
            [
                post("kilonova:enrollments:create", make),
                get("kilonova:enrollments:index", list),
                delete("kilonova:enrollments:delete", revoke_open_tokens),
            ],
        )
        .route(
            "/v2.1/kilonova/enrollments/{host}",
            [delete("kilonova:enrollments:delete", revoke_host)],
        )
}

/// The enrollment service; `None` without a listener for hosts.
#[derive(Clone)]
struct Service(Option<Enrollment>);

impl Service {
    fn enrollment(&self) -> Result<&Enrollment, Refusal> {
        self.0.as_ref().ok_or_else(|| {
            Refusal::conflict(
                "This controller does not listen for hosts: set [node] listen, or \
                 --node-listen ADDRESS:PORT.",
            )
        })
    }
}

async fn make(
    State(service): State<Service>,
    JsonBody(body): JsonBody,
) -> Result<(StatusCode, Json<Value>), Refusal> {
    let enrollment = service.enrollment()?;
    let TokenRequestBody { enrollment: request } =
        serde_json::from_value(body).map_err(|error| Refusal::bad_request(error.to_string()))?;
    let made = tokens::make(enrollment, request.host, request.valid, request.replace).await?;
    let shown = json!({
        "token": made.token.to_string(),
        "host": made.host,
        "url": enrollment.options.url,
        "authority": made.token.authority.to_string(),
        "expires_at": zulu(made.expires_at),
    });
    Ok((StatusCode::CREATED, Json(json!({"enrollment": shown}))))
}

async fn list(State(service): State<Service>) -> Result<Json<Value>, Refusal> {
    let enrollment = service.enrollment()?;
    let listing = tokens::list(enrollment).await?;
    let token_view = |(host, until): &(Option<HostName>, Timestamp)| json!({"host": host, "expires_at": zulu(*until)});
    Ok(Json(json!({
        "authority": enrollment.authorities().shown().fingerprint().to_string(),
        "url": enrollment.options.url,
        "certificates": listing.certificates.iter().map(certificate_view).collect::<Vec<_>>(),
        "tokens": listing.tokens.iter().map(token_view).collect::<Vec<_>>(),
    })))
}

fn certificate_view(one: &IssuedCertificate) -> Value {
    let addresses: Vec<&str> = one.addresses.split_whitespace().collect();
    let state = match one.revoked_at {
        Some(_) => "revoked",
        None if one.expires_at <= time::now() => "expired",
        None => "valid",
    };
    json!({
        "host": one.host,
        "serial": one.serial,
        "addresses": addresses,
        "made_at": zulu(one.made_at),
        "expires_at": zulu(one.expires_at),
        "revoked_at": one.revoked_at.map(zulu),
        "state": state,
    })
}

async fn revoke_host(
    State(service): State<Service>,
    Path(host): Path<HostName>,
) -> Result<Json<Value>, Refusal> {
    let revoked = revoke::revoke(service.enrollment()?, &host).await?;
    if revoked.certificates == 0 && revoked.tokens == 0 {
        return Err(Refusal::not_found(format!(
            "Host {} has no valid certificate and no unused join token.",
            host.escape_debug()
        )));
    }
    let (certificates, tokens) = (revoked.certificates, revoked.tokens);
    Ok(Json(json!({"revoked": {"host": host, "certificates": certificates, "tokens": tokens}})))
}

async fn revoke_open_tokens(
    State(service): State<Service>,
    query: Query,
) -> Result<Json<Value>, Refusal> {
    if query.0 != [("host".to_owned(), "none".to_owned())] {
        return Err(Refusal::bad_request(
            "Name a host in the path, or revoke the join tokens that name no host with ?host=none.",
        ));
    }
    let tokens = revoke::revoke_open_tokens(service.enrollment()?).await?;
    if tokens == 0 {
        return Err(Refusal::not_found("There is no unused join token for any host."));
    }
    Ok(Json(json!({"revoked": {"host": null, "tokens": tokens}})))
}
