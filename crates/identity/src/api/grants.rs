//! Roles of users and groups on projects, the domain and the system: giving, checking, taking.

use axum::extract::{Path, State};
use kilonova_access::{Caller, Guard, Routes, delete, get, put};
use kilonova_wire::{Base, Fault};

use super::{Answer, id_of, listing, may, no_content, roles};
use crate::app::assignments::Grant;
use crate::db::assignments::{Actor, Target};
use crate::{DOMAIN_ID, Error, Identity};

/// What is asked: list, check, give or take.
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
    const GIVE: Guard = Guard::Object(&["identity:create_grant"]);
    const TAKE: Guard = Guard::Object(&["identity:revoke_grant"]);
    let mut routes = Routes::new();
    for place in ["projects", "domains"] {
        for kind in ["users", "groups"] {
            let path = format!("/v3/{place}/{{place}}/{kind}/{{actor}}/roles");
            routes = routes.route(path.clone(), [get(LIST, list)]).route(
                format!("{path}/{{role}}"),
                [get(CHECK, check), put(GIVE, give), delete(TAKE, take)],
            );
        }
    }
    routes
        .route("/v3/system/users/{actor}/roles", [get(SYSTEM_USERS[0], list_system)])
        .route(
            "/v3/system/users/{actor}/roles/{role}",
            [
                get(SYSTEM_USERS[1], check_system),
                put(SYSTEM_USERS[2], give_system),
                delete(SYSTEM_USERS[3], take_system),
            ],
        )
        .route("/v3/system/groups/{actor}/roles", [get(SYSTEM_GROUPS[0], list_system)])
        .route(
            "/v3/system/groups/{actor}/roles/{role}",
            [
                get(SYSTEM_GROUPS[1], check_system),
                put(SYSTEM_GROUPS[2], give_system),
                delete(SYSTEM_GROUPS[3], take_system),
            ],
        )
}

/// Who and where, as the path says it: `/v3/PLACE/ID/KIND/ID/…` or `/v3/system/KIND/ID/…`.
fn ends(path: &str, place: Option<String>, actor: String) -> Result<(Actor, Target), Fault> {
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

/// Asks the rule; a domain's manager gives and takes some roles only, by their names.
async fn asked(identity: &Identity, caller: &Caller, rule: &str, role: &str) -> Result<(), Fault> {
    let name = match id_of("role", role) {
        Ok(()) => identity.role(role).await.map(|role| role.name).unwrap_or_default(),
        Err(_) => String::new(),
    };
    may(caller, rule, &[("target.role.name", &name), ("target.role.id", role)])
}

type Full = Path<(String, String, String)>;

fn whole(uri: &axum::http::Uri, Path((place, actor, role)): Full) -> Result<Grant, Fault> {
    id_of("role", &role)?;
    let (actor, target) = ends(uri.path(), Some(place), actor)?;
    Ok(Grant { actor, target, role })
}

fn on_system(
    uri: &axum::http::Uri,
    Path((actor, role)): Path<(String, String)>,
) -> Result<Grant, Fault> {
    id_of("role", &role)?;
    let (actor, target) = ends(uri.path(), None, actor)?;
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
    let (actor, target) = ends(uri.path(), Some(place), actor)?;
    roles_of(&identity, &base, &uri, actor, target).await
}

async fn list_system(
    State(identity): State<Identity>,
    base: Base,
    uri: axum::http::Uri,
    Path(actor): Path<String>,
) -> Answer {
    let (actor, target) = ends(uri.path(), None, actor)?;
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
    asked(&identity, &caller, GRANTS[1], &path.2).await?;
    identity.check_grant(whole(&uri, path)?).await?;
    no_content()
}

async fn give(
    State(identity): State<Identity>,
    caller: Caller,
    uri: axum::http::Uri,
    path: Full,
) -> Answer {
    asked(&identity, &caller, GRANTS[2], &path.2).await?;
    identity.grant(whole(&uri, path)?).await?;
    no_content()
}

async fn take(
    State(identity): State<Identity>,
    caller: Caller,
    uri: axum::http::Uri,
    path: Full,
) -> Answer {
    asked(&identity, &caller, GRANTS[3], &path.2).await?;
    identity.take_back(whole(&uri, path)?).await?;
    no_content()
}

async fn check_system(
    State(identity): State<Identity>,
    uri: axum::http::Uri,
    path: Path<(String, String)>,
) -> Answer {
    identity.check_grant(on_system(&uri, path)?).await?;
    no_content()
}

async fn give_system(
    State(identity): State<Identity>,
    uri: axum::http::Uri,
    path: Path<(String, String)>,
) -> Answer {
    identity.grant(on_system(&uri, path)?).await?;
    no_content()
}

async fn take_system(
    State(identity): State<Identity>,
    uri: axum::http::Uri,
    path: Path<(String, String)>,
) -> Answer {
    identity.take_back(on_system(&uri, path)?).await?;
    no_content()
}
