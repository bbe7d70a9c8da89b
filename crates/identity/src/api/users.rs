//! Users.

use axum::extract::{Path, State};
use axum::http::Uri;
use kilonova_access::{Caller, Guard, Routes, delete, get, patch, post};
use kilonova_wire::query::Query;
use kilonova_wire::{Base, JsonBody, PeerAddress, Refusal, SmallJson};
use serde_json::{Value, json};

use super::isotime;
use super::target::PolicyTarget;
use super::tokens::LOGIN_LIMIT;
use super::{
    Answer, ListFilter, Page, changes, created, fields, id_of, may, no_content, ok, resembles,
    self_link, with_extra,
};
use crate::db::users::User;
use crate::{DOMAIN_ID, Error, Identity};

pub(super) fn routes() -> Routes<Identity> {
    let rule = |rules| Guard::Object(rules);
    Routes::new()
        .route(
            "/v3/users",
            [
                get(rule(&["identity:list_users"]), list),
                post(rule(&["identity:create_user"]), create),
            ],
        )
        .route(
            "/v3/users/{id}",
            [
                get(rule(&["identity:get_user"]), show),
                patch(rule(&["identity:update_user"]), update),
                delete(rule(&["identity:delete_user"]), remove),
            ],
        )
        // As in upstream, knowledge of the old password suffices.
        .route("/v3/users/{id}/password", [post(Guard::Open, change_password)])
}

pub(super) fn view(user: &User, base: &Base) -> Value {
    let mut view = with_extra(
        &user.extra,
        [
            ("id", json!(user.id)),
            ("name", json!(user.name)),
            ("domain_id", json!(DOMAIN_ID)),
            ("enabled", json!(user.enabled)),
            ("password_expires_at", Value::Null),
            ("options", json!(user.options)),
            ("links", self_link(base, "users", &user.id)),
        ],
    );
    if let Some(project) = &user.default_project_id {
        view.insert("default_project_id".into(), json!(project));
    }
    Value::Object(view)
}

/// Enforces a rule on the user of the URL.
async fn enforce(
    identity: &Identity,
    caller: &Caller,
    rule: &str,
    id: &str,
) -> Result<(), Refusal> {
    PolicyTarget::of(caller, rule).user(id).may(identity).await
}

/// True if a query filters by the expiry of passwords. None expires here, so that no user passes such a filter, whichever
/// operator it has (`_create_password_expires_query` of `keystone/identity/backends/sql.py`).
///
/// # Errors
/// 400 with the messages of `_translate_expired_password_hints` (`keystone/identity/core.py`).
pub(super) fn filters_by_expiry(query: &Query) -> Result<bool, Refusal> {
    let mut found = false;
    for (key, value) in &query.0 {
        if attribute(key) != "password_expires_at" {
            continue;
        }
        found = true;
        // Upstream expects the colon after an operator of two or three characters.
        let has_operator = value.chars().skip(2).take(2).any(|c| c == ':');
        let (operator, at) = match value.split_once(':') {
            Some(parts) if has_operator => parts,
            _ => ("eq", value.as_str()),
        };
        if !isotime::is_valid(at) {
            return Err(Refusal::bad_request(
                "Timestamp not in expected format. The server could not comply with the request since it is either \
                 malformed or otherwise incorrect. The client is assumed to be in error.",
            ));
        }
        if !["lt", "gt", "eq", "lte", "gte", "neq"].contains(&operator) {
            return Err(Refusal::bad_request(format!(
                "The given operator {} is not valid. It must be one of the following: 'eq', 'neq', 'lt', 'lte', 'gt', \
                 or 'gte'.",
                operator.escape_debug()
            )));
        }
    }
    Ok(found)
}

/// True if a query filters by an attribute of federated users, of whom there are none (`_handle_shadow_and_local_users` of
/// `keystone/identity/core.py`).
fn filters_by_federation(query: &Query) -> bool {
    query.keys().any(|key| ["idp_id", "protocol_id", "unique_id"].contains(&attribute(key)))
}

/// The attribute of a filter, which may have a comparator.
fn attribute(key: &str) -> &str {
    key.split_once("__").map_or(key, |(attribute, _)| attribute)
}

async fn list(
    State(identity): State<Identity>,
    caller: Caller,
    base: Base,
    uri: Uri,
    query: Query,
) -> Answer {
    may(&caller, "identity:list_users", &[])?;
    let mut filter = ListFilter::read(&query);
    filter.matches_nothing |= filters_by_expiry(&query)? || filters_by_federation(&query);
    let page = Page::read(&query)?;
    if let Some(marker) = &page.marker {
        identity.user(marker).await.map_err(Error::no_marker)?;
    }
    let found = if filter.matches_nothing {
        Vec::new()
    } else {
        identity.users(filter.name, filter.enabled).await?
    };
    let items = found
        .iter()
        .map(|user| view(user, &base))
        .filter(|view| resembles(&query, &["name", "enabled", "domain_id"], view))
        .collect();
    page.listing(&query, &base, &uri, "users", items)
}

async fn show(
    State(identity): State<Identity>,
    caller: Caller,
    base: Base,
    Path(id): Path<String>,
) -> Answer {
    enforce(&identity, &caller, "identity:get_user", &id).await?;
    id_of("user", &id)?;
    ok(json!({"user": view(&identity.user(&id).await?, &base)}))
}

async fn create(
    State(identity): State<Identity>,
    caller: Caller,
    peer: PeerAddress,
    base: Base,
    body: JsonBody,
) -> Answer {
    PolicyTarget::of(&caller, "identity:create_user").sent("user", &body).may(&identity).await?;
    let user = identity.create_user(fields(body, "user")?, peer.fairness_key()).await?;
    created(json!({"user": view(&user, &base)}))
}

async fn update(
    State(identity): State<Identity>,
    caller: Caller,
    peer: PeerAddress,
    base: Base,
    Path(id): Path<String>,
    body: JsonBody,
) -> Answer {
    enforce(&identity, &caller, "identity:update_user", &id).await?;
    id_of("user", &id)?;
    let user = identity.update_user(&id, changes(body, "user", &id)?, peer.fairness_key()).await?;
    ok(json!({"user": view(&user, &base)}))
}

/// True for the path of a change of a user's password.
pub(super) fn is_password(path: &str) -> bool {
    let user = path.strip_prefix("/v3/users/").and_then(|rest| rest.strip_suffix("/password"));
    user.is_some_and(|user| !user.is_empty() && !user.contains('/'))
}

/// Needs no token: the old password proves the user, as in a login (`UserChangePasswordResource` of
/// `keystone/api/users.py`).
async fn change_password(
    State(identity): State<Identity>,
    peer: PeerAddress,
    Path(id): Path<String>,
    body: SmallJson<LOGIN_LIMIT>,
) -> Answer {
    id_of("user", &id)?;
    identity
        .change_password(&id, fields(JsonBody(body.0), "user")?, peer.fairness_key())
        .await
        .map_err(|error| identity.refuse(error))?;
    no_content()
}

async fn remove(
    State(identity): State<Identity>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer {
    enforce(&identity, &caller, "identity:delete_user", &id).await?;
    id_of("user", &id)?;
    identity.delete_user(&id).await?;
    no_content()
}
