//! `/v3/auth/tokens`: issues, validates and revokes tokens.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use kilonova_access::{Caller, Guard, Routes, delete, get, post};
use kilonova_wire::query::Query;
use kilonova_wire::{Authenticator as _, Base, Context, PeerAddress, Refusal, SmallJson};
use serde_json::Value;

use super::token_view::{self, Entries};
use super::{Answer, auth_request, may, no_content};
use crate::api::authenticator::bearer;
use crate::app::session::{Expiry, Session};
use crate::{Error, Identity, catalog};

/// The path of this resource.
pub(super) const PATH: &str = "/v3/auth/tokens";

const X_SUBJECT_TOKEN: HeaderName = HeaderName::from_static("x-subject-token");
const CHECK: &str = "identity:check_token";
const VALIDATE: &str = "identity:validate_token";
const REVOKE: &str = "identity:revoke_token";

/// Maximum size of a login body in bytes: four times the longest password, because the client is not
/// authenticated yet.
pub(super) const LOGIN_LIMIT: usize = 16 * 1024;

pub(super) fn routes() -> Routes<Identity> {
    Routes::new().route(
        PATH,
        [
            post(Guard::Open, login),
            get(Guard::Object(&[VALIDATE, CHECK]), show),
            delete(Guard::Object(&[REVOKE]), revoke),
        ],
    )
}

/// Authenticates requests to this path other than a login; the login makes the path public.
///
/// This service refuses an expired token, even if a service vouches for it, as `AuthContextMiddleware` of Keystone does,
/// which ignores `allow_expired` (`keystone/server/flask/request_processing/middleware/auth_context.py`): a stolen token
/// must not change users or grants after its end. Only the subject of a validation may have expired.
///
/// It also refuses tokens from EC2 signatures, as the same middleware does since July 2026: they are for other services, which
/// may validate them here. A service that receives a signed request must not manage the credentials of its signer.
pub(super) async fn admit(
    State(identity): State<Identity>,
    mut request: Request,
    next: Next,
) -> Response {
    let needs_token = request.uri().path().trim_end_matches('/').ends_with(PATH)
        && request.method() != Method::POST;
    if needs_token && request.extensions().get::<Context>().is_none() {
        match identity.authenticate(request.headers()).await {
            Ok(context) => drop(request.extensions_mut().insert(context)),
            Err(fault) => return fault.into_response(),
        }
    }
    if request.extensions().get::<Context>().is_some_and(|caller| caller.expired) {
        let refused = Error::Unauthorized("the token has expired");
        return identity.refuse(refused).into_response();
    }
    if request.extensions().get::<Context>().is_some_and(|caller| caller.by_signature) {
        let refused = Refusal::forbidden("You are not authorized to perform the requested action.")
            .with_internal("a token from an EC2 signature does not open the identity service");
        return identity.refuse(refused).into_response();
    }
    next.run(request).await
}

async fn login(
    State(identity): State<Identity>,
    peer: PeerAddress,
    base: Base,
    query: Query,
    body: SmallJson<LOGIN_LIMIT>,
) -> Answer {
    let (proof, scope) = auth_request::read(&body.0).map_err(|refusal| identity.refuse(refusal))?;
    let (text, session) = identity
        .login(proof, scope, peer.fairness_key())
        .await
        .map_err(|error| identity.refuse(error))?;
    tracing::info!(
        user = session.user.id,
        project = session.project().map(|p| p.id.as_str()),
        audit = session.token.audit_id(),
        "token issued"
    );
    respond(StatusCode::CREATED, &identity, &base, &query, &text, &session).await
}

async fn show(
    State(identity): State<Identity>,
    caller: Caller,
    method: Method,
    base: Base,
    query: Query,
    headers: HeaderMap,
) -> Answer {
    let rule = if method == Method::HEAD { CHECK } else { VALIDATE };
    let expiry = match query.get("allow_expired") {
        Some(text) if is_true(text) => Expiry::Allowed,
        _ => Expiry::Refused,
    };
    let (text, session) = subject(&identity, &caller, rule, &headers, expiry).await?;
    respond(StatusCode::OK, &identity, &base, &query, text, &session).await
}

async fn revoke(State(identity): State<Identity>, caller: Caller, headers: HeaderMap) -> Answer {
    let (_, session) = subject(&identity, &caller, REVOKE, &headers, Expiry::Refused).await?;
    identity.revoke(&session.token).await?;
    no_content()
}

/// The token in `X-Subject-Token`. An invalid token is a 404 before policy is enforced, as in
/// Keystone, because there is no user for the rule to compare. A missing one is a 404 for those whom the rule allows without
/// that user (`validate_token` of `keystone/token/provider.py`).
async fn subject<'a>(
    identity: &Identity,
    caller: &Caller,
    rule: &str,
    headers: &'a HeaderMap,
    expiry: Expiry,
) -> Result<(&'a str, Session), Refusal> {
    let Ok(text) = bearer(headers, &X_SUBJECT_TOKEN) else {
        may(caller, rule, &[])?;
        return Err(Refusal::not_found("No token in the request"));
    };
    let session = match identity.session(text, expiry).await {
        Err(Error::Unauthorized(why)) => {
            return Err(Refusal::from(Error::NoSuchToken).with_internal(why));
        }
        found => found?,
    };
    may(caller, rule, &[("target.token.user_id", &session.user.id)])?;
    Ok((text, session))
}

pub(super) async fn respond(
    status: StatusCode,
    identity: &Identity,
    base: &Base,
    query: &Query,
    text: &str,
    session: &Session,
) -> Answer {
    let body = match query.get("nocatalog") {
        Some(_) => token_view::view(session, None),
        None => with_catalog(identity, base, session).await?,
    };
    let mut response = (status, axum::Json(body)).into_response();
    let headers = response.headers_mut();
    headers.insert(X_SUBJECT_TOKEN, HeaderValue::from_str(text).map_err(Refusal::internal)?);
    headers.insert(header::VARY, HeaderValue::from_static("X-Auth-Token"));
    Ok(response)
}

/// The view of a token with the catalog.
pub(super) async fn with_catalog(
    identity: &Identity,
    base: &Base,
    session: &Session,
) -> Result<Value, Error> {
    let (own, registered) = (identity.catalog(), identity.registered().await?);
    let entries = Entries { own: &own, registered: &registered, root: catalog::root(&base.0) };
    Ok(token_view::view(session, Some(&entries)))
}

/// True for a word that Keystone reads as true.
fn is_true(text: &str) -> bool {
    matches!(text.to_ascii_lowercase().as_str(), "1" | "t" | "true" | "on" | "y" | "yes")
}
