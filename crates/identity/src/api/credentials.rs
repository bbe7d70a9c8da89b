//! Application credentials. Only their user sees and makes them; an admin may see and remove.

use axum::Router;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::routing::get;
use kilonova_wire::query::Query;
use kilonova_wire::{Base, Context, Fault, JsonBody, time};
use serde_json::{Value, json};

use super::{Answer, Filter, created, fields, id_of, listing, no_content, ok};
use crate::app::credentials::{WithRoles, may_change};
use crate::{Error, Identity};

pub(super) fn routes() -> Router<Identity> {
    Router::new()
        .route("/v3/users/{user}/application_credentials", get(list).post(create))
        .route("/v3/users/{user}/application_credentials/{id}", get(show).delete(delete))
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
        "expires_at": credential.expires_at.map(time::naive),
        "unrestricted": credential.unrestricted,
        "system": null,
        "links": {"self": format!(
            "{}/v3/users/{}/application_credentials/{}",
            base.0, credential.user_id, credential.id,
        )},
    })
}

fn visible(context: &Context, user: &str) -> Result<(), Fault> {
    id_of("user", user)?;
    if context.is_admin() || context.user_id == user {
        return Ok(());
    }
    Err(Error::NotFound("user", user.to_owned()).into())
}

async fn list(
    State(identity): State<Identity>,
    context: Context,
    base: Base,
    Path(user): Path<String>,
    query: Query,
) -> Answer {
    visible(&context, &user)?;
    identity.user(&user).await?;
    let filter = Filter::read(&query)?;
    let found =
        if filter.nothing { Vec::new() } else { identity.credentials(&user, filter.name).await? };
    let items = found.iter().map(|credential| view(credential, &base)).collect();
    let path = format!("/v3/users/{user}/application_credentials");
    listing(&base, &path, "application_credentials", items)
}

async fn show(
    State(identity): State<Identity>,
    context: Context,
    base: Base,
    Path((user, id)): Path<(String, String)>,
) -> Answer {
    visible(&context, &user)?;
    id_of("application credential", &id)?;
    let found = identity.credential(&user, &id).await?;
    ok(json!({"application_credential": view(&found, &base)}))
}

async fn create(
    State(identity): State<Identity>,
    headers: HeaderMap,
    base: Base,
    Path(user): Path<String>,
    body: JsonBody,
) -> Answer {
    let session = identity.caller(&headers).await.map_err(|error| identity.refuse(error))?;
    if session.user.id != user {
        return Err(Error::Forbidden("identity:create_application_credential").into());
    }
    let fields = fields(body, "application_credential")?;
    let (made, secret) = identity.create_credential(&session, &fields).await?;
    let mut shown = view(&made, &base);
    shown["secret"] = json!(secret);
    created(json!({"application_credential": shown}))
}

async fn delete(
    State(identity): State<Identity>,
    context: Context,
    headers: HeaderMap,
    Path((user, id)): Path<(String, String)>,
) -> Answer {
    visible(&context, &user)?;
    id_of("application credential", &id)?;
    let session = identity.caller(&headers).await.map_err(|error| identity.refuse(error))?;
    may_change(&session)?;
    identity.delete_credential(&user, &id).await?;
    no_content()
}
