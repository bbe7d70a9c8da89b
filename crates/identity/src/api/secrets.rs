//! Credentials that users store for other services (`/v3/credentials`), as in `keystone/api/credentials.py`.

use axum::extract::{Path, State};
use axum::http::{HeaderMap, Uri};
use kilonova_access::{Caller, Guard, Routes, delete, get, patch, post};
use kilonova_wire::query::Query;
use kilonova_wire::{Base, Fault, JsonBody};
use serde_json::{Value, json};

use super::{
    Answer, allows, created, fields, fits, id_of, listing, may, no_content, ok, self_link,
    with_extra,
};
use crate::app::secrets::{SecretRequest, WithBlob, check_project};
use crate::app::session::Session;
use crate::db::secrets::StoredSecret;
use crate::{Error, Identity};

const LIST: &str = "identity:list_credentials";
const SHOW: &str = "identity:get_credential";
const CREATE: &str = "identity:create_credential";
const UPDATE: &str = "identity:update_credential";
const DELETE: &str = "identity:delete_credential";
/// The attribute of a policy target with the owner of a credential.
pub(super) const OWNER: &str = "target.credential.user_id";

pub(super) fn routes() -> Routes<Identity> {
    Routes::new()
        .route(
            "/v3/credentials",
            [get(Guard::Object(&[LIST]), list), post(Guard::Object(&[CREATE]), create)],
        )
        .route(
            "/v3/credentials/{id}",
            [
                get(Guard::Object(&[SHOW]), show),
                patch(Guard::Object(&[UPDATE]), update),
                delete(Guard::Object(&[DELETE]), remove),
            ],
        )
}

fn view((secret, blob): &WithBlob, base: &Base) -> Value {
    let own = [
        ("id", json!(secret.id)),
        ("user_id", json!(secret.user_id)),
        ("project_id", json!(secret.project_id)),
        ("type", json!(secret.kind)),
        ("blob", json!(blob)),
        ("links", self_link(base, "credentials", &secret.id)),
    ];
    with_extra(&secret.extra, own).into()
}

/// The policy target of a credential.
pub(super) fn target(secret: &StoredSecret) -> Vec<(&str, &str)> {
    let project = secret.project_id.as_deref().map(|id| ("target.credential.project_id", id));
    let own = [
        ("target.credential.id", secret.id.as_str()),
        (OWNER, secret.user_id.as_str()),
        ("target.credential.type", secret.kind.as_str()),
    ];
    own.into_iter().chain(project).collect()
}

pub(super) async fn session(identity: &Identity, headers: &HeaderMap) -> Result<Session, Fault> {
    identity.caller(headers).await.map_err(|error| identity.refuse(error))
}

/// A credential, if the rule allows the caller to use it. Callers who may use only their own credentials get the same
/// refusal for another user's credential and for a missing one.
async fn found(
    identity: &Identity,
    caller: &Caller,
    headers: &HeaderMap,
    rule: &str,
    id: &str,
) -> Result<StoredSecret, Fault> {
    id_of("credential", id)?;
    let secret = match identity.secret(id).await {
        Err(error @ Error::NotFound(..)) => {
            may(caller, rule, &[])?;
            return Err(error.into());
        }
        found => found?,
    };
    may(caller, rule, &target(&secret))?;
    check_project(&session(identity, headers).await?, secret.project_id.as_deref())?;
    Ok(secret)
}

/// The credentials that the caller may see; others are left out, as upstream does.
async fn list(
    State(identity): State<Identity>,
    caller: Caller,
    headers: HeaderMap,
    base: Base,
    uri: Uri,
    query: Query,
) -> Answer {
    // As in upstream, the system has no owner.
    let own: &[_] = &[(OWNER, caller.user_id.as_str())];
    may(&caller, LIST, if caller.system { &[] } else { own })?;
    // A caller who may not see the credentials of just any user sees only their own.
    let user = match query.get("user_id") {
        None if allows(&caller, SHOW, &[(OWNER, "")]) => None,
        None => Some(caller.user_id.clone()),
        Some(id) => Some(id.to_owned()),
    };
    let mut secrets = Vec::new();
    if user.as_ref().is_none_or(|id| !id.chars().any(char::is_control)) {
        secrets = identity.secrets(user).await?;
    }
    secrets.retain(|secret| allows(&caller, SHOW, &target(secret)));
    if !secrets.is_empty() {
        let session = session(&identity, &headers).await?;
        secrets.retain(|secret| check_project(&session, secret.project_id.as_deref()).is_ok());
    }
    let secrets = identity.open_secrets(secrets).await?;
    let items = secrets
        .iter()
        .map(|secret| view(secret, &base))
        .filter(|view| fits(&query, &["user_id", "type"], view))
        .collect();
    listing(&base, &uri, "credentials", items)
}

async fn create(
    State(identity): State<Identity>,
    caller: Caller,
    headers: HeaderMap,
    base: Base,
    body: JsonBody,
) -> Answer {
    let request = SecretRequest::read_new(&fields(body, "credential")?)?;
    may(&caller, CREATE, &[(OWNER, request.user_id.as_deref().unwrap_or_default())])?;
    let session = session(&identity, &headers).await?;
    let made = identity.create_secret(&session, request).await?;
    created(json!({"credential": view(&made, &base)}))
}

async fn show(
    State(identity): State<Identity>,
    caller: Caller,
    headers: HeaderMap,
    base: Base,
    Path(id): Path<String>,
) -> Answer {
    let secret = found(&identity, &caller, &headers, SHOW, &id).await?;
    let opened = identity.open_secret(secret).await?;
    ok(json!({"credential": view(&opened, &base)}))
}

async fn update(
    State(identity): State<Identity>,
    caller: Caller,
    headers: HeaderMap,
    base: Base,
    Path(id): Path<String>,
    body: JsonBody,
) -> Answer {
    let fields = fields(body, "credential")?;
    let request = SecretRequest::read(&fields)?;
    let secret = found(&identity, &caller, &headers, UPDATE, &id).await?;
    if fields.get("id").is_some_and(|other| other != &id) {
        return Err(Error::Invalid("Cannot change ID".to_owned()).into());
    }
    // The caller must be allowed to use the changed credential too, so that it cannot be given to another user.
    if let Some(owner) = &request.user_id {
        may(&caller, UPDATE, &target(&StoredSecret { user_id: owner.clone(), ..secret.clone() }))?;
    }
    let changed = identity.update_secret(secret, request).await?;
    ok(json!({"credential": view(&changed, &base)}))
}

async fn remove(
    State(identity): State<Identity>,
    caller: Caller,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Answer {
    found(&identity, &caller, &headers, DELETE, &id).await?;
    identity.delete_secret(&id).await?;
    no_content()
}
