//! `/v3/auth/tokens`: logging in, asking about a token, ending it.

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use kilonova_wire::query::Query;
use kilonova_wire::{Base, Fault, SmallJson};

use super::{Answer, auth_request, no_content, token_view};
use crate::app::session::Session;
use crate::authenticator::bearer;
use crate::{Error, Identity, catalog};

const X_SUBJECT_TOKEN: HeaderName = HeaderName::from_static("x-subject-token");

/// Bytes that the body of a login may have: four times the longest password, and nobody knows yet
/// who sends it.
const LOGIN_LIMIT: usize = 16 * 1024;

pub(super) fn routes() -> Router<Identity> {
    Router::new().route("/v3/auth/tokens", post(login).get(show).delete(revoke))
}

async fn login(
    State(identity): State<Identity>,
    base: Base,
    query: Query,
    body: SmallJson<LOGIN_LIMIT>,
) -> Answer {
    let (proof, scope) = auth_request::read(&body.0)?;
    let (text, session) =
        identity.login(proof, scope).await.map_err(|error| identity.refuse(error))?;
    tracing::info!(
        user = session.user.id,
        project = session.project.as_ref().map(|p| p.id.as_str()),
        audit = session.token.audit_id(),
        "token issued"
    );
    shown(StatusCode::CREATED, &identity, &base, &query, &text, &session)
}

async fn show(
    State(identity): State<Identity>,
    base: Base,
    query: Query,
    headers: HeaderMap,
) -> Answer {
    let (text, session) = subject(&identity, &headers).await?;
    shown(StatusCode::OK, &identity, &base, &query, text, &session)
}

async fn revoke(State(identity): State<Identity>, headers: HeaderMap) -> Answer {
    let (_, session) = subject(&identity, &headers).await?;
    identity.revoke(&session.token).await?;
    no_content()
}

/// The token that is asked about. One may ask about one's own; admins and services about any.
async fn subject<'a>(
    identity: &Identity,
    headers: &'a HeaderMap,
) -> Result<(&'a str, Session), Fault> {
    let caller = identity.caller(headers).await.map_err(|error| identity.refuse(error))?;
    let text = bearer(headers, &X_SUBJECT_TOKEN)
        .map_err(|_| Fault::bad_request("The header X-Subject-Token is missing."))?;
    let session = match identity.session(text).await {
        Err(Error::Unauthorized(why)) => {
            return Err(Fault::from(Error::NoSuchToken).with_internal(why));
        }
        answer => answer?,
    };
    let privileged = caller.roles.iter().any(|role| role.name == "admin" || role.name == "service");
    if !privileged && caller.user.id != session.user.id {
        return Err(Error::Forbidden("identity:validate_token").into());
    }
    Ok((text, session))
}

fn shown(
    status: StatusCode,
    identity: &Identity,
    base: &Base,
    query: &Query,
    text: &str,
    session: &Session,
) -> Result<Response, Fault> {
    let entries = identity.catalog();
    let wanted = query.get("nocatalog").is_none().then_some(entries.as_slice());
    let body = token_view::view(session, wanted, catalog::root(&base.0));
    let mut response = (status, axum::Json(body)).into_response();
    let headers = response.headers_mut();
    headers.insert(X_SUBJECT_TOKEN, HeaderValue::from_str(text).map_err(Fault::internal)?);
    headers.insert(header::VARY, HeaderValue::from_static("X-Auth-Token"));
    Ok(response)
}
