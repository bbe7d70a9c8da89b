//! Role grants of users and groups on projects, the domain and the system.

use axum::extract::{Path, State};
use kilonova_access::{Caller, Guard, Routes, delete, get, put};
use kilonova_wire::{Base, Refusal};

use super::{Answer, id_of, listing, may, no_content, roles};
use crate::app::assignments::Grant;
use crate::db::assignments::{Actor, Target};
use crate::{DOMAIN_ID, Error, Identity};

/// The rules for listing, checking, granting and revoking.
type Rules = [&'static str; 4];

const GRANTS: Rules = [
    "identity:list_grants",
    "identity:check_grant",
    "identity:create_grant",
    "identity:revoke_grant",
];
const SYSTEM_USERS: Rules = [
    "identity:list_system_grants_for_user",
    "identity:check_system_grant_for_user",
    "identity:create_system_grant_for_user",
    "identity:revoke_system_grant_for_user",
];
const SYSTEM_GROUPS: Rules = [
    "identity:list_system_grants_for_group",
    "identity:check_system_grant_for_group",
    "identity:create_system_grant_for_group",
    "identity:revoke_system_grant_for_group",
];

pub(super) fn routes() -> Routes<Identity> {
    const LIST: Guard = Guard::Object(&["identity:list_grants"]);
    const CHECK: Guard = Guard::Object(&["identity:check_grant"]);
    const GRANT: Guard = Guard::Object(&["identity:create_grant"]);
    const REVOKE: Guard = Guard::Object(&["identity:revoke_grant"]);
    let mut routes = Routes::new();
    for place in ["projects", "domains"] {
        for kind in ["users", "groups"] {
            let path = format!("/v3/{place}/{{place}}/{kind}/{{actor}}/roles");
            routes = routes.route(path.clone(), [get(LIST, list)]).route(
                format!("{path}/{{role}}"),
                [get(CHECK, check), put(GRANT, grant), delete(REVOKE, revoke)],
            );
        }
    }
    routes
        .route("/v3/system/users/{actor}/roles", [get(SYSTEM_USERS[0], list_system)])
        .route(
            "/v3/system/users/{actor}/roles/{role}",
            [
                get(SYSTEM_USERS[1], check_system),
                put(SYSTEM_USERS[2], grant_system),
                delete(SYSTEM_USERS[3], revoke_system),
            ],
        )
        .route("/v3/system/groups/{actor}/roles", [get(SYSTEM_GROUPS[0], list_system)])
        .route(
            "/v3/system/groups/{actor}/roles/{role}",
            [
                get(SYSTEM_GROUPS[1], check_system),
                put(SYSTEM_GROUPS[2], grant_system),
                delete(SYSTEM_GROUPS[3], revoke_system),
            ],
        )
}

/// The actor and target of a path `/v3/PLACE/ID/KIND/ID/…` or `/v3/system/KIND/ID/…`.
fn actor_and_target(
    path: &str,
    place: Option<String>,
    actor: String,
) -> Result<(Actor, Target), Refusal> {
    let mut words = path.split('/').skip_while(|word| *word != "v3").skip(1);
    let kind = words.next().unwrap_or_default();
    let target = match (kind, place) {
        ("projects", Some(id)) => {
            id_of("project", &id)?;
            Target::Project(id)
        }
        ("domains", Some(id)) if id == DOMAIN_ID => Target::Domain,
        ("domains", Some(id)) => {
            return Err(Error::NotFound("domain", id.escape_debug().to_string()).into());
        }
        _ => Target::System,
    };
    let mut words = match target {
        Target::System => words,
        Target::Project(_) | Target::Domain => {
            words.next();
            words
        }
    };
    let actor = match words.next() {
        Some("groups") => {
            id_of("group", &actor)?;
            Actor::Group(actor)
        }
        _ => {
            id_of("user", &actor)?;
            Actor::User(actor)
        }
    };
    Ok((actor, target))
}

/// Enforces a grant rule with the role's name: a domain manager may grant and revoke only some roles.
async fn enforce(
    identity: &Identity,
    caller: &Caller,
    rule: &str,
    role: &str,
) -> Result<(), Refusal> {
    let name = match id_of("role", role) {
        Ok(()) => identity.role(role).await.map(|role| role.name).unwrap_or_default(),
        Err(_) => String::new(),
    };
    may(caller, rule, &[("target.role.name", &name), ("target.role.id", role)])
}

type Full = Path<(String, String, String)>;

fn project_or_domain_grant(
    uri: &axum::http::Uri,
    Path((place, actor, role)): Full,
) -> Result<Grant, Refusal> {
    id_of("role", &role)?;
    let (actor, target) = actor_and_target(uri.path(), Some(place), actor)?;
    Ok(Grant { actor, target, role })
}

fn system_grant(
    uri: &axum::http::Uri,
    Path((actor, role)): Path<(String, String)>,
) -> Result<Grant, Refusal> {
    id_of("role", &role)?;
    let (actor, target) = actor_and_target(uri.path(), None, actor)?;
    Ok(Grant { actor, target, role })
}

async fn list(
    State(identity): State<Identity>,
    caller: Caller,
    base: Base,
    uri: axum::http::Uri,
    Path((place, actor)): Path<(String, String)>,
) -> Answer {
    may(&caller, GRANTS[0], &[])?;
    let (actor, target) = actor_and_target(uri.path(), Some(place), actor)?;
    roles_of(&identity, &base, &uri, actor, target).await
}

async fn list_system(
    State(identity): State<Identity>,
    base: Base,
    uri: axum::http::Uri,
    Path(actor): Path<String>,
) -> Answer {
    let (actor, target) = actor_and_target(uri.path(), None, actor)?;
    roles_of(&identity, &base, &uri, actor, target).await
}

async fn roles_of(
    identity: &Identity,
    base: &Base,
    uri: &axum::http::Uri,
    actor: Actor,
    target: Target,
) -> Answer {
    let found = identity.granted(actor, target).await?;
    let items = found.iter().map(|role| roles::view(role, base)).collect();
    listing(base, uri.path(), "roles", items)
}

async fn check(
    State(identity): State<Identity>,
    caller: Caller,
    uri: axum::http::Uri,
    path: Full,
) -> Answer {
    enforce(&identity, &caller, GRANTS[1], &path.2).await?;
    identity.check_grant(project_or_domain_grant(&uri, path)?).await?;
    no_content()
}

async fn grant(
    State(identity): State<Identity>,
    caller: Caller,
    uri: axum::http::Uri,
    path: Full,
) -> Answer {
    enforce(&identity, &caller, GRANTS[2], &path.2).await?;
    identity.grant(project_or_domain_grant(&uri, path)?).await?;
    no_content()
}

async fn revoke(
    State(identity): State<Identity>,
    caller: Caller,
    uri: axum::http::Uri,
    path: Full,
) -> Answer {
    enforce(&identity, &caller, GRANTS[3], &path.2).await?;
    identity.revoke_grant(project_or_domain_grant(&uri, path)?).await?;
    no_content()
}

async fn check_system(
    State(identity): State<Identity>,
    uri: axum::http::Uri,
    path: Path<(String, String)>,
) -> Answer {
    identity.check_grant(system_grant(&uri, path)?).await?;
    no_content()
}

async fn grant_system(
    State(identity): State<Identity>,
    uri: axum::http::Uri,
    path: Path<(String, String)>,
) -> Answer {
    identity.grant(system_grant(&uri, path)?).await?;
    no_content()
}

async fn revoke_system(
    State(identity): State<Identity>,
    uri: axum::http::Uri,
    path: Path<(String, String)>,
) -> Answer {
    identity.revoke_grant(system_grant(&uri, path)?).await?;
    no_content()
}
