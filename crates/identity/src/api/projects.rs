//! Projects.

use axum::extract::{Path, State};
use axum::http::Uri;
use kilonova_access::{Caller, Guard, Routes, delete, get, patch, post};
use kilonova_wire::query::Query;
use kilonova_wire::{Base, JsonBody, Refusal};
use serde_json::{Value, json};

use super::target::PolicyTarget;
use super::{
    Answer, ListFilter, Page, as_boolean, changes, created, fields, fits, id_of, listing, may,
    no_content, ok, options, resembles, self_link, with_extra,
};
use crate::db::projects::Project;
use crate::{DOMAIN_ID, DOMAIN_NAME, Error, Identity};

pub(super) fn routes() -> Routes<Identity> {
    let rule = |rules| Guard::Object(rules);
    Routes::new()
        .route(
            "/v3/projects",
            [
                get(rule(&["identity:list_projects"]), list),
                post(rule(&["identity:create_project"]), create),
            ],
        )
        .route(
            "/v3/projects/{id}",
            [
                get(rule(&["identity:get_project"]), show),
                patch(rule(&["identity:update_project"]), update),
                delete(rule(&["identity:delete_project"]), remove),
            ],
        )
        .route("/v3/auth/projects", [get("identity:get_auth_projects", own)])
        .route("/v3/users/{id}/projects", [get(rule(&["identity:list_user_projects"]), of_user)])
}

pub(super) fn view(project: &Project, base: &Base) -> Value {
    Value::Object(with_extra(
        &project.extra,
        [
            ("id", json!(project.id)),
            ("name", json!(project.name)),
            ("domain_id", json!(DOMAIN_ID)),
            ("description", json!(project.description)),
            ("enabled", json!(project.enabled)),
            ("parent_id", json!(DOMAIN_ID)),
            ("is_domain", json!(false)),
            ("tags", json!(project.tags)),
            ("options", options(project.immutable)),
            ("links", self_link(base, "projects", &project.id)),
        ],
    ))
}

/// The domain as the project that acts as one, which only lists of such projects contain.
fn as_project(description: &str, base: &Base) -> Value {
    json!({
        "id": DOMAIN_ID,
        "name": DOMAIN_NAME,
        "domain_id": null,
        "description": description,
        "enabled": true,
        "parent_id": null,
        "is_domain": true,
        "tags": [],
        "options": {},
        "links": self_link(base, "projects", DOMAIN_ID),
    })
}

/// Enforces a rule on the project of the URL.
pub(super) async fn enforce(
    identity: &Identity,
    caller: &Caller,
    rule: &str,
    id: &str,
) -> Result<(), Refusal> {
    PolicyTarget::of(caller, rule).project(id).may(identity).await
}

async fn list(
    State(identity): State<Identity>,
    caller: Caller,
    base: Base,
    uri: Uri,
    query: Query,
) -> Answer {
    may(&caller, "identity:list_projects", &[])?;
    let filter = ListFilter::read(&query);
    let page = Page::read(&query)?;
    let domains = query.get("is_domain").is_some_and(as_boolean);
    if let Some(marker) = page.marker.as_ref().filter(|id| !domains || *id != DOMAIN_ID) {
        identity.project(marker).await.map_err(Error::no_marker)?;
    }
    if domains {
        let domain = as_project(&identity.domain_description().await?, &base);
        let fits = |view: &Value| {
            // The domain of a token contains projects, but not itself.
            caller.domain_id.is_empty()
                && filter.enabled != Some(false)
                && tagged(&query, &[])
                && fits(&query, &["name", "domain_id", "parent_id"], view)
                && resembles(&query, &["enabled"], view)
        };
        let items = [domain].into_iter().filter(fits).collect();
        return page.listing(&query, &base, &uri, "projects", items);
    }
    let beneath = query.get("parent_id").is_some_and(|id| id != DOMAIN_ID);
    let found = if filter.matches_nothing || beneath {
        Vec::new()
    } else {
        identity.projects(filter.name, filter.enabled, None).await?
    };
    let items = found
        .iter()
        .filter(|project| tagged(&query, &project.tags))
        .map(|project| view(project, &base))
        .filter(|view| resembles(&query, &["name", "enabled", "domain_id", "parent_id"], view))
        .collect();
    page.listing(&query, &base, &uri, "projects", items)
}

/// True if tags match the filters `tags`, `tags-any`, `not-tags` and `not-tags-any`.
fn tagged(query: &Query, tags: &[String]) -> bool {
    let has = |tag: &str| tags.iter().any(|have| have == tag);
    let list = |key: &str| query.get(key).map(|list| list.split(',').collect::<Vec<_>>());
    list("tags").is_none_or(|all| all.into_iter().all(has))
        && list("tags-any").is_none_or(|any| any.into_iter().any(has))
        && list("not-tags").is_none_or(|all| !all.into_iter().all(has))
        && list("not-tags-any").is_none_or(|any| !any.into_iter().any(has))
}

async fn own(State(identity): State<Identity>, caller: Caller, base: Base, uri: Uri) -> Answer {
    let user = Some(caller.user_id.clone());
    let found = identity.projects(None, Some(true), user).await?;
    let items = found.iter().map(|project| view(project, &base)).collect();
    listing(&base, &uri, "projects", items)
}

/// The filters are those of `UserProjectsResource` in `keystone/api/users.py`.
async fn of_user(
    State(identity): State<Identity>,
    caller: Caller,
    base: Base,
    uri: Uri,
    Path(id): Path<String>,
    query: Query,
) -> Answer {
    PolicyTarget::of(&caller, "identity:list_user_projects").user(&id).may(&identity).await?;
    id_of("user", &id)?;
    let filter = ListFilter::read(&query);
    identity.user(&id).await?;
    let page = Page::read(&query)?;
    if let Some(marker) = &page.marker {
        identity.project(marker).await.map_err(Error::no_marker)?;
    }
    let found = if filter.matches_nothing {
        Vec::new()
    } else {
        identity.projects(filter.name, filter.enabled, Some(id.clone())).await?
    };
    let items = found
        .iter()
        .map(|project| view(project, &base))
        .filter(|view| resembles(&query, &["name", "enabled", "domain_id"], view))
        .collect();
    page.listing(&query, &base, &uri, "projects", items)
}

async fn show(
    State(identity): State<Identity>,
    caller: Caller,
    base: Base,
    Path(id): Path<String>,
    query: Query,
) -> Answer {
    enforce(&identity, &caller, "identity:get_project", &id).await?;
    id_of("project", &id)?;
    let project = identity.project(&id).await?;
    let mut view = view(&project, &base);
    // Each project is directly below the domain, and no project is below another. Keystone's lists
    // contain only projects on which the caller has a role, so they never contain the domain.
    if let Some(form) = relatives(&query, "parents")? {
        view["parents"] = match form {
            Form::List => json!([]),
            Form::Ids => json!({DOMAIN_ID: null}),
        };
    }
    if let Some(form) = relatives(&query, "subtree")? {
        view["subtree"] = match form {
            Form::List => json!([]),
            Form::Ids => Value::Null,
        };
    }
    ok(json!({"project": view}))
}

/// The form in which an answer shows the parents or the subtree of a project.
#[derive(Debug, Clone, Copy)]
enum Form {
    List,
    Ids,
}

/// The form that `KIND_as_list` or `KIND_as_ids` requests. A parameter without a value counts; one with `0` does not.
fn relatives(query: &Query, kind: &str) -> Result<Option<Form>, Refusal> {
    let asked =
        |form: &str| query.get(&format!("{kind}_as_{form}")).is_some_and(|flag| flag != "0");
    match (asked("list"), asked("ids")) {
        (true, true) => Err(Refusal::bad_request(format!(
            "Cannot use {kind}_as_list and {kind}_as_ids query params at the same time."
        ))),
        (true, false) => Ok(Some(Form::List)),
        (false, true) => Ok(Some(Form::Ids)),
        (false, false) => Ok(None),
    }
}

async fn create(
    State(identity): State<Identity>,
    caller: Caller,
    base: Base,
    body: JsonBody,
) -> Answer {
    let target = PolicyTarget::of(&caller, "identity:create_project").sent("project", &body);
    target.may(&identity).await?;
    let project = identity.create_project(fields(body, "project")?).await?;
    created(json!({"project": view(&project, &base)}))
}

async fn update(
    State(identity): State<Identity>,
    caller: Caller,
    base: Base,
    Path(id): Path<String>,
    body: JsonBody,
) -> Answer {
    enforce(&identity, &caller, "identity:update_project", &id).await?;
    id_of("project", &id)?;
    let project = identity.update_project(&id, changes(body, "project", &id)?).await?;
    ok(json!({"project": view(&project, &base)}))
}

async fn remove(
    State(identity): State<Identity>,
    caller: Caller,
    Path(id): Path<String>,
) -> Answer {
    enforce(&identity, &caller, "identity:delete_project", &id).await?;
    id_of("project", &id)?;
    identity.delete_project(&id).await?;
    no_content()
}
