//! Application credentials.

use axum::extract::{Path, State};
use axum::http::{HeaderMap, Uri};
use kilonova_access::{Caller, Guard, Routes, delete, get, post};
use kilonova_wire::query::Query;
use kilonova_wire::{Base, Fault, JsonBody, PeerAddress, time};
use serde_json::{Value, json};

use super::{Answer, ListFilter, created, fields, id_of, listing, may, no_content, ok, resembles};
use crate::app::credentials::{WithRoles, may_change, refuse_trust};
use crate::app::session::Session;
use crate::{Error, Identity};

pub(super) fn routes() -> Routes<Identity> {
    let rule = |rules| Guard::Object(rules);
    Routes::new()
        .route(
            "/v3/users/{user}/application_credentials",
            [
                get(rule(&["identity:list_application_credentials"]), list),
                post(rule(&["identity:create_application_credential"]), create),
            ],
        )
        .route(
            "/v3/users/{user}/application_credentials/{id}",
            [
                get(rule(&["identity:get_application_credential"]), show),
                delete(rule(&["identity:delete_application_credential"]), remove),
            ],
        )
}

fn view((credential, roles): &WithRoles, base: &Base) -> Value {
    let roles: Vec<Value> =
        roles.iter().map(|(id, name)| json!({"id": id, "name": name, "domain_id": null})).collect();
    json!({
        "id": credential.id,
        "name": credential.name,
        "description": credential.description,
        "user_id": credential.user_id,
        "project_id": credential.project_id,
        "roles": roles,
        "expires_at": credential.expires_at.map(time::naive_micros),
        "unrestricted": credential.unrestricted,
        "system": null,
        "links": {"self": format!(
            "{}/v3/users/{}/application_credentials/{}",
            base.0, credential.user_id, credential.id,
        )},
    })
}

/// The caller's session, which must not be that of a trust.
async fn session(identity: &Identity, headers: &HeaderMap) -> Result<Session, Fault> {
    let session = identity.caller(headers).await.map_err(|error| identity.refuse(error))?;
    refuse_trust(&session)?;
    Ok(session)
}

async fn list(
    State(identity): State<Identity>,
    caller: Caller,
    headers: HeaderMap,
    base: Base,
    uri: Uri,
    Path(user): Path<String>,
    query: Query,
) -> Answer {
    may(&caller, "identity:list_application_credentials", &[("user_id", &user)])?;
    session(&identity, &headers).await?;
    id_of("user", &user)?;
    identity.user(&user).await?;
    let filter = ListFilter::read(&query);
    let found = if filter.matches_nothing {
        Vec::new()
    } else {
        identity.credentials(&user, filter.name).await?
    };
    let items = found
        .iter()
        .map(|credential| view(credential, &base))
        .filter(|view| resembles(&query, &["name"], view))
        .collect();
    listing(&base, &uri, "application_credentials", items)
}

async fn show(
    State(identity): State<Identity>,
    caller: Caller,
    headers: HeaderMap,
    base: Base,
    Path((user, id)): Path<(String, String)>,
) -> Answer {
    may(&caller, "identity:get_application_credential", &[("user_id", &user)])?;
    session(&identity, &headers).await?;
    id_of("user", &user)?;
    id_of("application credential", &id)?;
    let found = identity.credential(&user, &id).await?;
    ok(json!({"application_credential": view(&found, &base)}))
}

async fn create(
    State(identity): State<Identity>,
    caller: Caller,
    peer: PeerAddress,
    headers: HeaderMap,
    base: Base,
    Path(user): Path<String>,
    body: JsonBody,
) -> Answer {
    may(&caller, "identity:create_application_credential", &[("user_id", &user)])?;
    let session = session(&identity, &headers).await?;
    may_change(&session)?;
    if session.user.id != user {
        return Err(Error::Forbidden("identity:create_application_credential").into());
    }
    let fields = fields(body, "application_credential")?;
    let (made, secret) = identity.create_credential(&session, &fields, peer.fairness_key()).await?;
    let mut shown = view(&made, &base);
    shown["secret"] = json!(secret);
    created(json!({"application_credential": shown}))
}

async fn remove(
    State(identity): State<Identity>,
    caller: Caller,
    headers: HeaderMap,
    Path((user, id)): Path<(String, String)>,
) -> Answer {
    may(&caller, "identity:delete_application_credential", &[("user_id", &user)])?;
    may_change(&session(&identity, &headers).await?)?;
    id_of("user", &user)?;
    id_of("application credential", &id)?;
    identity.delete_credential(&user, &id).await?;
    no_content()
}
