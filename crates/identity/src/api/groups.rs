//! Groups of users.

use axum::extract::{Path, State};
use axum::http::Uri;
use kilonova_access::{Caller, Guard, Routes, delete, get, patch, post, put};
use kilonova_wire::query::Query;
use kilonova_wire::{Base, JsonBody, Refusal};
use serde_json::{Value, json};

use super::target::PolicyTarget;
use super::{
    Answer, ListFilter, Page, changes, created, fields, id_of, may, no_content, ok, resembles,
    self_link, users, with_extra,
};
use crate::db::groups::Group;
use crate::{DOMAIN_ID, Error, Identity};

pub(super) fn routes() -> Routes<Identity> {
    let rule = |rules| Guard::Object(rules);
    Routes::new()
        .route(
            "/v3/groups",
            [
                get(rule(&["identity:list_groups"]), list),
                post(rule(&["identity:create_group"]), create),
            ],
        )
        .route(
            "/v3/groups/{id}",
            [
                get(rule(&["identity:get_group"]), show),
                patch(rule(&["identity:update_group"]), update),
                delete(rule(&["identity:delete_group"]), remove),
            ],
        )
        .route("/v3/groups/{id}/users", [get(rule(&["identity:list_users_in_group"]), members)])
        .route(
            "/v3/groups/{id}/users/{user}",
            [
                get(rule(&["identity:check_user_in_group"]), contains),
                put(rule(&["identity:add_user_to_group"]), join),
                delete(rule(&["identity:remove_user_from_group"]), leave),
            ],
        )
        .route("/v3/users/{id}/groups", [get(rule(&["identity:list_groups_for_user"]), of_user)])
}

pub(super) fn view(group: &Group, base: &Base) -> Value {
    Value::Object(with_extra(
        &group.extra,
        [
            ("id", json!(group.id)),
            ("name", json!(group.name)),
            ("domain_id", json!(DOMAIN_ID)),
            ("description", json!(group.description)),
            ("links", self_link(base, "groups", &group.id)),
        ],
    ))
}

/// Enforces a rule on the group of the URL, and on its user if it names one.
async fn enforce(
    identity: &Identity,
    caller: &Caller,
    rule: &str,
    group: &str,
    user: Option<&str>,
) -> Result<(), Refusal> {
    let mut target = PolicyTarget::of(caller, rule).group(group);
    if let Some(user) = user {
        target = target.user(user);
    }
    target.may(identity).await
}

async fn list(
    State(identity): State<Identity>,
    caller: Caller,
    base: Base,
    uri: Uri,
    query: Query,
) -> Answer {
    may(&caller, "identity:list_groups", &[])?;
    let filter = ListFilter::read(&query);
    let page = Page::read(&query)?;
    if let Some(marker) = &page.marker {
        identity.group(marker).await.map_err(Error::no_marker)?;
    }
    let found =
        if filter.matches_nothing { Vec::new() } else { identity.groups(filter.name).await? };
    let items = found
        .iter()
        .map(|group| view(group, &base))
        .filter(|view| resembles(&query, &["name", "domain_id"], view))
        .collect();
    page.listing(&query, &base, &uri, "groups", items)
}

async fn of_user(
    State(identity): State<Identity>,
    caller: Caller,
    base: Base,
    uri: Uri,
    Path(id): Path<String>,
    query: Query,
) -> Answer {
    PolicyTarget::of(&caller, "identity:list_groups_for_user").user(&id).may(&identity).await?;
    id_of("user", &id)?;
    let filter = ListFilter::read(&query);
    let page = Page::read(&query)?;
    if let Some(marker) = &page.marker {
        identity.group(marker).await.map_err(Error::no_marker)?;
    }
    let found = identity.groups_of(&id, filter.name).await?;
    let items = found
        .iter()
        .map(|group| view(group, &base))
        .filter(|view| resembles(&query, &["name"], view))
        .collect();
    page.listing(&query, &base, &uri, "groups", items)
}

async fn show(
    State(identity): State<Identity>,
    caller: Caller,
    base: Base,
    Path(id): Path<String>,
) -> Answer {
    enforce(&identity, &caller, "identity:get_group", &id, None).await?;
    id_of("group", &id)?;
    ok(json!({"group": view(&identity.group(&id).await?, &base)}))
}

async fn create(
    State(identity): State<Identity>,
    caller: Caller,
    base: Base,
    body: JsonBody,
) -> Answer {
    PolicyTarget::of(&caller, "identity:create_group").sent("group", &body).may(&identity).await?;
    let group = identity.create_group(fields(body, "group")?).await?;
    created(json!({"group": view(&group, &base)}))
}

async fn update(
    State(identity): State<Identity>,
    caller: Caller,
    base: Base,
    Path(id): Path<String>,
    body: JsonBody,
) -> Answer {
    enforce(&identity, &caller, "identity:update_group", &id, None).await?;
    id_of("group", &id)?;
    let group = identity.update_group(&id, changes(body, "group", &id)?).await?;
    ok(json!({"group": view(&group, &base)}))
}

async fn remove(
    State(identity): State<Identity>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer {
    enforce(&identity, &caller, "identity:delete_group", &id, None).await?;
    id_of("group", &id)?;
    identity.delete_group(&id).await?;
    no_content()
}

async fn members(
    State(identity): State<Identity>,
    caller: Caller,
    base: Base,
    uri: Uri,
    Path(id): Path<String>,
    query: Query,
) -> Answer {
    enforce(&identity, &caller, "identity:list_users_in_group", &id, None).await?;
    id_of("group", &id)?;
    let mut filter = ListFilter::read(&query);
    filter.matches_nothing |= users::filters_by_expiry(&query)?;
    let page = Page::read(&query)?;
    if let Some(marker) = &page.marker {
        identity.user(marker).await.map_err(Error::no_marker)?;
    }
    let found = identity.members(&id, filter.name).await?;
    let items = found
        .iter()
        .filter(|user| {
            !filter.matches_nothing && filter.enabled.is_none_or(|enabled| enabled == user.enabled)
        })
        .map(|user| users::view(user, &base))
        .filter(|view| resembles(&query, &["name", "enabled", "domain_id"], view))
        .collect();
    page.listing(&query, &base, &uri, "users", items)
}

async fn contains(
    State(identity): State<Identity>,
    caller: Caller,
    Path((id, user)): Path<(String, String)>,
) -> Answer {
    enforce(&identity, &caller, "identity:check_user_in_group", &id, Some(&user)).await?;
    id_of("group", &id)?;
    id_of("user", &user)?;
    identity.is_in_group(&id, &user).await?;
    no_content()
}

async fn join(
    State(identity): State<Identity>,
    caller: Caller,
    Path((id, user)): Path<(String, String)>,
) -> Answer {
    enforce(&identity, &caller, "identity:add_user_to_group", &id, Some(&user)).await?;
    id_of("group", &id)?;
    id_of("user", &user)?;
    identity.join_group(&id, &user).await?;
    no_content()
}

async fn leave(
    State(identity): State<Identity>,
    caller: Caller,
    Path((id, user)): Path<(String, String)>,
) -> Answer {
    enforce(&identity, &caller, "identity:remove_user_from_group", &id, Some(&user)).await?;
    id_of("group", &id)?;
    id_of("user", &user)?;
    identity.leave_group(&id, &user).await?;
    no_content()
}
