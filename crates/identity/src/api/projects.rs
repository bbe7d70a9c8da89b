//! Projects.

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::get;
use kilonova_wire::query::Query;
use kilonova_wire::{Base, Context, JsonBody};
use serde_json::{Value, json};

use super::{Answer, Filter, admin, created, fields, id_of, listing, no_content, ok, self_link};
use crate::db::projects::Project;
use crate::{DOMAIN_ID, Error, Identity};

pub(super) fn routes() -> Router<Identity> {
    Router::new()
        .route("/v3/projects", get(list).post(create))
        .route("/v3/projects/{id}", get(show).patch(update).delete(delete))
        .route("/v3/auth/projects", get(own))
        .route("/v3/users/{id}/projects", get(of_user))
}

pub(super) fn view(project: &Project, base: &Base) -> Value {
    let mut view = project.extra.clone();
    view.extend(
        [
            ("id", json!(project.id)),
            ("name", json!(project.name)),
            ("domain_id", json!(DOMAIN_ID)),
            ("description", json!(project.description)),
            ("enabled", json!(project.enabled)),
            ("parent_id", json!(DOMAIN_ID)),
            ("is_domain", json!(false)),
            ("tags", json!(project.tags)),
            ("options", json!({})),
            ("links", self_link(base, "projects", &project.id)),
        ]
        .map(|(key, value)| (key.to_owned(), value)),
    );
    Value::Object(view)
}

/// Admins see all, everyone else the projects that he has a role on.
async fn list(
    State(identity): State<Identity>,
    context: Context,
    base: Base,
    query: Query,
) -> Answer {
    let filter = Filter::read(&query)?;
    let beneath = query.get("parent_id").is_some_and(|id| id != DOMAIN_ID);
    let domains = query.get("is_domain").is_some_and(|flag| flag.eq_ignore_ascii_case("true"));
    let member = (!context.is_admin()).then(|| context.user_id.clone());
    let found = if filter.nothing || beneath || domains {
        Vec::new()
    } else {
        identity.projects(filter.name, filter.enabled, member).await?
    };
    let items = found.iter().map(|project| view(project, &base)).collect();
    listing(&base, "/v3/projects", "projects", items)
}

async fn own(State(identity): State<Identity>, context: Context, base: Base) -> Answer {
    let found = identity.projects(None, Some(true), Some(context.user_id)).await?;
    let items = found.iter().map(|project| view(project, &base)).collect();
    listing(&base, "/v3/auth/projects", "projects", items)
}

async fn of_user(
    State(identity): State<Identity>,
    context: Context,
    base: Base,
    Path(id): Path<String>,
) -> Answer {
    id_of("user", &id)?;
    if !context.is_admin() && context.user_id != id {
        return Err(Error::NotFound("user", id).into());
    }
    identity.user(&id).await?;
    let found = identity.projects(None, None, Some(id.clone())).await?;
    let items = found.iter().map(|project| view(project, &base)).collect();
    listing(&base, &format!("/v3/users/{id}/projects"), "projects", items)
}

async fn show(
    State(identity): State<Identity>,
    context: Context,
    base: Base,
    Path(id): Path<String>,
) -> Answer {
    id_of("project", &id)?;
    let project = identity.project(&id).await?;
    if !context.may_see(&id) {
        let own = identity.projects(None, None, Some(context.user_id)).await?;
        if !own.iter().any(|project| project.id == id) {
            return Err(Error::NotFound("project", id).into());
        }
    }
    ok(json!({"project": view(&project, &base)}))
}

async fn create(
    State(identity): State<Identity>,
    context: Context,
    base: Base,
    body: JsonBody,
) -> Answer {
    admin(&context, "identity:create_project")?;
    let project = identity.create_project(fields(body, "project")?).await?;
    created(json!({"project": view(&project, &base)}))
}

async fn update(
    State(identity): State<Identity>,
    context: Context,
    base: Base,
    Path(id): Path<String>,
    body: JsonBody,
) -> Answer {
    admin(&context, "identity:update_project")?;
    id_of("project", &id)?;
    let project = identity.update_project(&id, fields(body, "project")?).await?;
    ok(json!({"project": view(&project, &base)}))
}

async fn delete(
    State(identity): State<Identity>,
    context: Context,
    Path(id): Path<String>,
) -> Answer {
    admin(&context, "identity:delete_project")?;
    id_of("project", &id)?;
    identity.delete_project(&id).await?;
    no_content()
}
