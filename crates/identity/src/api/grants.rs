//! Roles of users on projects: the grants themselves, and the listing of assignments.

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::get;
use kilonova_wire::query::Query;
use kilonova_wire::{Base, Context, Fault};
use serde_json::{Value, json};

use super::{Answer, admin, id_of, listing, no_content, roles};
use crate::app::assignments::Grant;
use crate::db::assignments::Assignment;
use crate::{DOMAIN_ID, DOMAIN_NAME, Identity};

pub(super) fn routes() -> Router<Identity> {
    Router::new()
        .route("/v3/projects/{project}/users/{user}/roles", get(list))
        .route(
            "/v3/projects/{project}/users/{user}/roles/{role}",
            get(check).put(give).delete(take),
        )
        .route("/v3/role_assignments", get(assignments))
}

fn grant((project, user, role): (String, String, String)) -> Result<Grant, Fault> {
    id_of("project", &project)?;
    id_of("user", &user)?;
    id_of("role", &role)?;
    Ok(Grant { project, user, role })
}

async fn list(
    State(identity): State<Identity>,
    context: Context,
    base: Base,
    Path((project, user)): Path<(String, String)>,
) -> Answer {
    admin(&context, "identity:list_grants")?;
    id_of("project", &project)?;
    id_of("user", &user)?;
    let found = identity.granted(&project, &user).await?;
    let items = found.iter().map(|role| roles::view(role, &base)).collect();
    listing(&base, &format!("/v3/projects/{project}/users/{user}/roles"), "roles", items)
}

async fn check(
    State(identity): State<Identity>,
    context: Context,
    Path(path): Path<(String, String, String)>,
) -> Answer {
    admin(&context, "identity:check_grant")?;
    identity.check_grant(grant(path)?).await?;
    no_content()
}

async fn give(
    State(identity): State<Identity>,
    context: Context,
    Path(path): Path<(String, String, String)>,
) -> Answer {
    admin(&context, "identity:create_grant")?;
    identity.grant(grant(path)?).await?;
    no_content()
}

async fn take(
    State(identity): State<Identity>,
    context: Context,
    Path(path): Path<(String, String, String)>,
) -> Answer {
    admin(&context, "identity:revoke_grant")?;
    identity.take_back(grant(path)?).await?;
    no_content()
}

/// Admins see all, everyone else his own. Filters on things that do not exist here (groups,
/// domains, the system) match nothing.
async fn assignments(
    State(identity): State<Identity>,
    context: Context,
    base: Base,
    query: Query,
) -> Answer {
    let filter = |key: &str| query.get(key).map(str::to_owned);
    let flag =
        |key: &str| query.get(key).is_some_and(|v| !v.eq_ignore_ascii_case("false") && v != "0");
    let mut user = filter("user.id");
    let mut nothing =
        ["group.id", "scope.domain.id", "scope.system", "scope.OS-INHERIT:inherited_to"]
            .into_iter()
            .any(|key| query.get(key).is_some());
    if !context.is_admin() {
        nothing |= user.as_ref().is_some_and(|id| *id != context.user_id);
        user = Some(context.user_id);
    }
    let (project, role) = (filter("scope.project.id"), filter("role.id"));
    let filters = [&user, &project, &role];
    nothing |= filters.into_iter().flatten().any(|id| id.chars().any(char::is_control));
    let found = if nothing {
        Vec::new()
    } else {
        identity.assignments(user, project, role, flag("effective")).await?
    };
    let names = flag("include_names");
    let items = found.iter().map(|assignment| view(assignment, names, &base)).collect();
    listing(&base, "/v3/role_assignments", "role_assignments", items)
}

fn view(assignment: &Assignment, names: bool, base: &Base) -> Value {
    let mut view = json!({
        "role": {"id": assignment.role_id},
        "user": {"id": assignment.user_id},
        "scope": {"project": {"id": assignment.project_id}},
        "links": {"assignment": format!(
            "{}/v3/projects/{}/users/{}/roles/{}",
            base.0, assignment.project_id, assignment.user_id, assignment.role_id,
        )},
    });
    if names {
        let domain = json!({"id": DOMAIN_ID, "name": DOMAIN_NAME});
        view["role"]["name"] = json!(assignment.role_name);
        view["user"]["name"] = json!(assignment.user_name);
        view["user"]["domain"] = domain.clone();
        view["scope"]["project"]["name"] = json!(assignment.project_name);
        view["scope"]["project"]["domain"] = domain;
    }
    view
}
