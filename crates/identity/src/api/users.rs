//! Users.

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::{get, post};
use kilonova_wire::query::Query;
use kilonova_wire::{Base, Context, JsonBody};
use serde_json::{Value, json};

use super::{Answer, Filter, admin, created, fields, id_of, listing, no_content, ok, self_link};
use crate::db::users::User;
use crate::{DOMAIN_ID, Error, Identity};

pub(super) fn routes() -> Router<Identity> {
    Router::new()
        .route("/v3/users", get(list).post(create))
        .route("/v3/users/{id}", get(show).patch(update).delete(delete))
        .route("/v3/users/{id}/password", post(change_password))
        .route("/v3/users/{id}/groups", get(groups))
}

fn view(user: &User, base: &Base) -> Value {
    let mut view = user.extra.clone();
    view.extend(
        [
            ("id", json!(user.id)),
            ("name", json!(user.name)),
            ("domain_id", json!(DOMAIN_ID)),
            ("enabled", json!(user.enabled)),
            ("password_expires_at", Value::Null),
            ("options", json!({})),
            ("links", self_link(base, "users", &user.id)),
        ]
        .map(|(key, value)| (key.to_owned(), value)),
    );
    if let Some(project) = &user.default_project_id {
        view.insert("default_project_id".into(), json!(project));
    }
    Value::Object(view)
}

/// Admins see all, everyone else himself.
async fn list(
    State(identity): State<Identity>,
    context: Context,
    base: Base,
    query: Query,
) -> Answer {
    let filter = Filter::read(&query)?;
    let only = (!context.is_admin()).then(|| context.user_id.clone());
    let found = if filter.nothing {
        Vec::new()
    } else {
        identity.users(filter.name, filter.enabled, only).await?
    };
    let items = found.iter().map(|user| view(user, &base)).collect();
    listing(&base, "/v3/users", "users", items)
}

fn visible(context: &Context, id: &str) -> Result<(), kilonova_wire::Fault> {
    id_of("user", id)?;
    if context.is_admin() || context.user_id == id {
        return Ok(());
    }
    Err(Error::NotFound("user", id.to_owned()).into())
}

async fn show(
    State(identity): State<Identity>,
    context: Context,
    base: Base,
    Path(id): Path<String>,
) -> Answer {
    visible(&context, &id)?;
    ok(json!({"user": view(&identity.user(&id).await?, &base)}))
}

async fn groups(
    State(identity): State<Identity>,
    context: Context,
    base: Base,
    Path(id): Path<String>,
) -> Answer {
    visible(&context, &id)?;
    identity.user(&id).await?;
    listing(&base, &format!("/v3/users/{id}/groups"), "groups", Vec::new())
}

async fn create(
    State(identity): State<Identity>,
    context: Context,
    base: Base,
    body: JsonBody,
) -> Answer {
    admin(&context, "identity:create_user")?;
    let user = identity.create_user(fields(body, "user")?).await?;
    created(json!({"user": view(&user, &base)}))
}

async fn update(
    State(identity): State<Identity>,
    context: Context,
    base: Base,
    Path(id): Path<String>,
    body: JsonBody,
) -> Answer {
    admin(&context, "identity:update_user")?;
    id_of("user", &id)?;
    let user = identity.update_user(&id, fields(body, "user")?).await?;
    ok(json!({"user": view(&user, &base)}))
}

async fn change_password(
    State(identity): State<Identity>,
    context: Context,
    Path(id): Path<String>,
    body: JsonBody,
) -> Answer {
    visible(&context, &id)?;
    identity
        .change_password(&id, fields(body, "user")?)
        .await
        .map_err(|error| identity.refuse(error))?;
    no_content()
}

async fn delete(
    State(identity): State<Identity>,
    context: Context,
    Path(id): Path<String>,
) -> Answer {
    admin(&context, "identity:delete_user")?;
    id_of("user", &id)?;
    identity.delete_user(&id).await?;
    no_content()
}
