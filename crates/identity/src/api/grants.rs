//! Role grants of users and groups on projects, the domain and the system.

use axum::extract::{Path, State};
use axum::http::Uri;
use kilonova_access::{Caller, Guard, Routes, delete, get, put};
use kilonova_wire::{Base, Refusal};

use super::target::PolicyTarget;
use super::{Answer, id_of, listing, no_content, roles};
use crate::app::assignments::Grant;
use crate::db::assignments::{Actor, Target};
use crate::{DOMAIN_ID, Error, Identity};

/// The rules for listing, checking, granting and revoking.
type Rules = [&'static str; 4];

static GRANTS: Rules = [
    "identity:list_grants",
    "identity:check_grant",
    "identity:create_grant",
    "identity:revoke_grant",
];
static SYSTEM_USERS: Rules = [
    "identity:list_system_grants_for_user",
    "identity:check_system_grant_for_user",
    "identity:create_system_grant_for_user",
    "identity:revoke_system_grant_for_user",
];
static SYSTEM_GROUPS: Rules = [
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
    let one = |rules: &'static Rules, at: usize| Guard::Object(std::slice::from_ref(&rules[at]));
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
        .route("/v3/system/users/{actor}/roles", [get(one(&SYSTEM_USERS, 0), list_system)])
        .route(
            "/v3/system/users/{actor}/roles/{role}",
            [
                get(one(&SYSTEM_USERS, 1), check_system),
                put(one(&SYSTEM_USERS, 2), grant_system),
                delete(one(&SYSTEM_USERS, 3), revoke_system),
            ],
        )
        .route("/v3/system/groups/{actor}/roles", [get(one(&SYSTEM_GROUPS, 0), list_system)])
        .route(
            "/v3/system/groups/{actor}/roles/{role}",
            [
                get(one(&SYSTEM_GROUPS, 1), check_system),
                put(one(&SYSTEM_GROUPS, 2), grant_system),
                delete(one(&SYSTEM_GROUPS, 3), revoke_system),
            ],
        )
}

/// The words for target and actor in a path `/v3/PLACE/ID/KIND/ID/…` or `/v3/system/KIND/ID/…`.
fn words_of(path: &str) -> (&str, &str) {
    let mut words = path.split('/').skip_while(|word| *word != "v3").skip(1);
    let place = words.next().unwrap_or_default();
    let kind = words.nth(usize::from(place != "system"));
    (place, kind.unwrap_or_default())
}

/// The actor and target of a path.
fn actor_and_target(
    path: &str,
    place: Option<String>,
    actor: String,
) -> Result<(Actor, Target), Refusal> {
    let (of, kind) = words_of(path);
    let target = match (of, place) {
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
    let actor = if kind == "groups" {
        id_of("group", &actor)?;
        Actor::Group(actor)
    } else {
        id_of("user", &actor)?;
        Actor::User(actor)
    };
    Ok((actor, target))
}

/// Enforces one of a path's rules on its target, actor and role, as `_build_enforcement_target_attr` of
/// `keystone/api/projects.py` and `_build_enforcement_target` of `domains.py` and `system.py`. Among other things, a
/// domain manager may grant and revoke only some roles.
async fn enforce(
    identity: &Identity,
    caller: &Caller,
    uri: &Uri,
    at: usize,
    (place, actor, role): (Option<&str>, &str, Option<&str>),
) -> Result<(), Refusal> {
    let (of, kind) = words_of(uri.path());
    let (in_domain, of_groups) = (of == "domains", kind == "groups");
    let rules = match (place, of_groups) {
        (Some(_), _) => &GRANTS,
        (None, true) => &SYSTEM_GROUPS,
        (None, false) => &SYSTEM_USERS,
    };
    let mut target = PolicyTarget::of(caller, rules[at]);
    if let Some(place) = place {
        target = match in_domain {
            true => target.with("domain_id", place),
            false => target.project(place),
        };
    }
    target = match of_groups {
        true => target.group(actor),
        false => target.user(actor),
    };
    if let Some(role) = role {
        target = target.role(role);
    }
    target.may(identity).await
}

type Full = Path<(String, String, String)>;

fn project_or_domain_grant(uri: &Uri, Path((place, actor, role)): Full) -> Result<Grant, Refusal> {
    id_of("role", &role)?;
    let (actor, target) = actor_and_target(uri.path(), Some(place), actor)?;
    Ok(Grant { actor, target, role })
}

fn system_grant(uri: &Uri, Path((actor, role)): Path<(String, String)>) -> Result<Grant, Refusal> {
    id_of("role", &role)?;
    let (actor, target) = actor_and_target(uri.path(), None, actor)?;
    Ok(Grant { actor, target, role })
}

async fn list(
    State(identity): State<Identity>,
    caller: Caller,
    base: Base,
    uri: Uri,
    Path((place, actor)): Path<(String, String)>,
) -> Answer {
    enforce(&identity, &caller, &uri, 0, (Some(&place), &actor, None)).await?;
    let (actor, target) = actor_and_target(uri.path(), Some(place), actor)?;
    roles_of(&identity, &base, &uri, actor, target).await
}

async fn list_system(
    State(identity): State<Identity>,
    caller: Caller,
    base: Base,
    uri: Uri,
    Path(actor): Path<String>,
) -> Answer {
    enforce(&identity, &caller, &uri, 0, (None, &actor, None)).await?;
    let (actor, target) = actor_and_target(uri.path(), None, actor)?;
    roles_of(&identity, &base, &uri, actor, target).await
}

async fn roles_of(
    identity: &Identity,
    base: &Base,
    uri: &Uri,
    actor: Actor,
    target: Target,
) -> Answer {
    let found = identity.granted(actor, target).await?;
    let items = found.iter().map(|role| roles::view(role, base)).collect();
    listing(base, uri, "roles", items)
}

async fn check(State(identity): State<Identity>, caller: Caller, uri: Uri, path: Full) -> Answer {
    let (place, actor, role) = &path.0;
    enforce(&identity, &caller, &uri, 1, (Some(place), actor, Some(role))).await?;
    identity.check_grant(project_or_domain_grant(&uri, path)?).await?;
    no_content()
}

async fn grant(State(identity): State<Identity>, caller: Caller, uri: Uri, path: Full) -> Answer {
    let (place, actor, role) = &path.0;
    enforce(&identity, &caller, &uri, 2, (Some(place), actor, Some(role))).await?;
    identity.grant(project_or_domain_grant(&uri, path)?).await?;
    no_content()
}

async fn revoke(State(identity): State<Identity>, caller: Caller, uri: Uri, path: Full) -> Answer {
    let (place, actor, role) = &path.0;
    enforce(&identity, &caller, &uri, 3, (Some(place), actor, Some(role))).await?;
    identity.revoke_grant(project_or_domain_grant(&uri, path)?).await?;
    no_content()
}

async fn check_system(
    State(identity): State<Identity>,
    caller: Caller,
    uri: Uri,
    path: Path<(String, String)>,
) -> Answer {
    enforce(&identity, &caller, &uri, 1, (None, &path.0.0, Some(&path.0.1))).await?;
    identity.check_grant(system_grant(&uri, path)?).await?;
    no_content()
}

async fn grant_system(
    State(identity): State<Identity>,
    caller: Caller,
    uri: Uri,
    path: Path<(String, String)>,
) -> Answer {
    enforce(&identity, &caller, &uri, 2, (None, &path.0.0, Some(&path.0.1))).await?;
    identity.grant(system_grant(&uri, path)?).await?;
    no_content()
}

async fn revoke_system(
    State(identity): State<Identity>,
    caller: Caller,
    uri: Uri,
    path: Path<(String, String)>,
) -> Answer {
    enforce(&identity, &caller, &uri, 3, (None, &path.0.0, Some(&path.0.1))).await?;
    identity.revoke_grant(system_grant(&uri, path)?).await?;
    no_content()
}
