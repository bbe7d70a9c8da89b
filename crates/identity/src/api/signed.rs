//! `/v3/ec2tokens` and `/v3/s3tokens`: a service that received a signed request gets a token of its signer.
//!
//! Only services and administrators may ask, as in Keystone since 2025 (bug 2119646): the token of a request whose signature
//! anybody may have seen, such as that of a pre-signed URL, is not for whoever has it.

use axum::extract::State;
use axum::http::StatusCode;
use kilonova_access::{Guard, Routes, post};
use kilonova_wire::query::Query;
use kilonova_wire::{Base, Fault, JsonBody};
use serde_json::Value;

use super::{Answer, ok, tokens};
use crate::Identity;
use crate::app::ec2::{Form, SignedRequest};
use crate::app::session::Session;

pub(super) fn routes() -> Routes<Identity> {
    Routes::new()
        .route("/v3/ec2tokens", [post(Guard::Own("identity:ec2tokens_validate"), ec2)])
        .route("/v3/s3tokens", [post(Guard::Own("identity:s3tokens_validate"), s3)])
}

async fn ec2(State(identity): State<Identity>, base: Base, body: JsonBody) -> Answer {
    let (text, session) = login(&identity, Form::Ec2, body.0).await?;
    tokens::respond(StatusCode::OK, &identity, &base, &Query::default(), &text, &session).await
}

/// Unlike the other one, this response has no token, only its contents, as in Keystone.
async fn s3(State(identity): State<Identity>, base: Base, body: JsonBody) -> Answer {
    let (_, session) = login(&identity, Form::S3, body.0).await?;
    ok(tokens::with_catalog(&identity, &base, &session).await?)
}

async fn login(identity: &Identity, form: Form, body: Value) -> Result<(String, Session), Fault> {
    let refuse = |error| identity.refuse(error);
    let request = SignedRequest::read(form, body).map_err(refuse)?;
    let (text, session) = identity.by_signature(&request).await.map_err(refuse)?;
    tracing::info!(
        user = session.user.id,
        project = session.project().map(|p| p.id.as_str()),
        audit = session.token.audit_id(),
        "token issued for a signature"
    );
    Ok((text, session))
}
