//! The list of role assignments.

use axum::extract::State;
use axum::http::Uri;
use kilonova_access::{Caller, Guard, Routes, get};
use kilonova_wire::query::Query;
use kilonova_wire::{Base, Refusal};
use serde_json::{Value, json};

use super::{Answer, flag, id_of, listing, may};
use crate::app::assignments::ListedAssignment;
use crate::db::assignments::{Actor, AssignmentFilter, DOMAIN, SYSTEM, Target};
use crate::{DOMAIN_ID, DOMAIN_NAME, Identity};

const ALL: &str = "identity:list_role_assignments";
const TREE: &str = "identity:list_role_assignments_for_tree";

pub(super) fn routes() -> Routes<Identity> {
    Routes::new().route("/v3/role_assignments", [get(Guard::Object(&[ALL, TREE]), list)])
}

async fn list(
    State(identity): State<Identity>,
    caller: Caller,
    base: Base,
    uri: Uri,
    query: Query,
) -> Answer {
    let tree = flag(&query, "include_subtree");
    may(&caller, if tree { TREE } else { ALL }, &[])?;
    let effective = flag(&query, "effective");
    check(&query, effective, tree)?;
    let parameter = |key: &str| query.get(key).map(str::to_owned);
    let project = parameter("scope.project.id");
    // All projects are directly below the domain, which upstream also takes for a project here.
    let below_domain = tree && project.as_deref() == Some(DOMAIN_ID);
    if let Some(id) = project.as_ref().filter(|_| tree && !below_domain) {
        id_of("project", id)?;
        identity.project(id).await?;
    }
    let mut filter = AssignmentFilter {
        user: parameter("user.id"),
        group: parameter("group.id"),
        target: project.clone().filter(|_| !below_domain).map(Target::Project),
        role: parameter("role.id"),
    };
    let mut matches_nothing = query.get("scope.OS-INHERIT:inherited_to").is_some();
    if let Some(domain) = query.get("scope.domain.id") {
        matches_nothing |= domain != DOMAIN_ID;
        filter.target = Some(Target::Domain);
    }
    if query.get("scope.system").is_some() {
        filter.target = Some(Target::System);
    }
    let ids = [&filter.user, &filter.group, &filter.role, &project];
    matches_nothing |= ids.into_iter().flatten().any(|id| id.chars().any(char::is_control));
    // These values of the target column are no projects.
    matches_nothing |= project.is_some_and(|id| [SYSTEM, DOMAIN].contains(&id.as_str()));
    let found = match (matches_nothing, effective) {
        (true, _) => Vec::new(),
        (false, true) => identity.effective_assignments(filter).await?,
        (false, false) => identity.assignments(filter).await?,
    };
    let names = flag(&query, "include_names");
    let visible = |entry: &&ListedAssignment| {
        let target = &entry.assignment.target;
        (caller.domain_id.is_empty() || *target != Target::System)
            && (!below_domain || matches!(target, Target::Project(_)))
    };
    let items = found.iter().filter(visible).map(|entry| view(entry, names, &base)).collect();
    listing(&base, &uri, "role_assignments", items)
}

/// Refuses contradictory parameters, with upstream's messages.
fn check(query: &Query, effective: bool, tree: bool) -> Result<(), Refusal> {
    let has = |key: &str| query.get(key).is_some_and(|value| !value.is_empty());
    let (project, domain, system) =
        (has("scope.project.id"), has("scope.domain.id"), has("scope.system"));
    let why = if tree && !project {
        "scope.project.id must be specified if include_subtree is also specified"
    } else if domain && project {
        "Specify a domain or project, not both"
    } else if domain && system {
        "Specify system or domain, not both"
    } else if project && system {
        "Specify system or project, not both"
    } else if has("user.id") && has("group.id") {
        "Specify a user or group, not both"
    } else if effective && has("group.id") {
        "Combining effective and group filter will always result in an empty list."
    } else {
        return Ok(());
    };
    Err(Refusal::bad_request(why))
}

fn domain() -> Value {
    json!({"id": DOMAIN_ID, "name": DOMAIN_NAME})
}

fn view(entry: &ListedAssignment, names: bool, base: &Base) -> Value {
    let one = &entry.assignment;
    let (kind, id) = match &one.actor {
        Actor::User(id) => ("user", id),
        Actor::Group(id) => ("group", id),
    };
    let (place, scope) = match &one.target {
        Target::Project(id) => {
            let mut project = json!({"id": id});
            if names {
                project["name"] = json!(one.project_name);
                project["domain"] = domain();
            }
            (format!("projects/{id}"), json!({"project": project}))
        }
        Target::Domain => {
            let shown = if names { domain() } else { json!({"id": DOMAIN_ID}) };
            (format!("domains/{DOMAIN_ID}"), json!({"domain": shown}))
        }
        Target::System => ("system".to_owned(), json!({"system": {"all": true}})),
    };
    let granted = entry.prior.as_ref().unwrap_or(&one.role_id);
    let mut links = json!({});
    let by = match &one.group {
        Some(group) => {
            links["membership"] = json!(format!("{}/v3/groups/{group}/users/{id}", base.0));
            format!("groups/{group}")
        }
        None => format!("{kind}s/{id}"),
    };
    links["assignment"] = json!(format!("{}/v3/{place}/{by}/roles/{granted}", base.0));
    if let Some(prior) = &entry.prior {
        links["prior_role"] =
            json!(format!("{}/v3/prior_role/{prior}/implies/{}", base.0, one.role_id));
    }
    let mut actor = json!({"id": id});
    let mut role = json!({"id": one.role_id});
    if names {
        actor["name"] = json!(one.actor_name);
        actor["domain"] = domain();
        role["name"] = json!(one.role_name);
    }
    let mut view = json!({"role": role, "scope": scope, "links": links});
    view[kind] = actor;
    view
}
