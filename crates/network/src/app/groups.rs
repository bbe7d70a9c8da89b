//! Security groups. Each project has a group called `default`, created on first use, which allows ingress from its own
//! members and all egress. Only an administrator can delete it, as cleanup tools do; a project that is still in use
//! then gets a new one.

use jiff::Timestamp;
use kilonova_access::Caller;
use kilonova_ids::SecurityGroupId;
use kilonova_store::Tx;
use kilonova_wire::Refusal;
use kilonova_wire::refusal::Kind;
use serde_json::{Value, json};

use super::{Reach, quotas, rules, targets};
use crate::attributes::{Attribute, empty, nothing, of_change, of_new, owner, permitted, yes};
use crate::db::changes::{self, NetworkChange};
use crate::db::groups::{self as rows, Group, Rule};
use crate::db::ports;
use crate::error::{not_found, refused};
use crate::record::{Body, Record};
use crate::{Error, values};

pub(crate) const KIND: &str = "security_group";

/// The attributes.
pub(crate) const ATTRIBUTES: &[Attribute] = &[
    Attribute::new("name", values::text, empty),
    Attribute::new("description", values::long_text, empty),
    Attribute::new("stateful", values::flag, yes),
    Attribute::new("tags", values::tags, nothing),
];

/// The default group of a project, created if missing.
pub(crate) fn default_of(
    tx: &mut Tx<'_>,
    project: &str,
    now: Timestamp,
) -> Result<SecurityGroupId, Error> {
    match rows::default_of(tx, project)? {
        Some(id) => Ok(id),
        None => create_default(tx, project, now),
    }
}

/// Creates the default group of a project that has none in this transaction's snapshot. A concurrent
/// creation conflicts with this one.
pub(crate) fn create_default(
    tx: &mut Tx<'_>,
    project: &str,
    now: Timestamp,
) -> Result<SecurityGroupId, Error> {
    let body = json!({"name": "default", "description": "Default security group",
        "stateful": true, "tags": []});
    let group = Record::new(project, body.as_object().cloned().unwrap_or_default(), now);
    rows::insert(tx, &group, Some(project))?;
    for version in ["IPv4", "IPv6"] {
        rules::allow(tx, &group, "ingress", version, Some(group.id), now)?;
    }
    for version in ["IPv4", "IPv6"] {
        rules::allow(tx, &group, "egress", version, None, now)?;
    }
    Ok(group.id)
}

/// Creates the project's default group if missing.
pub(crate) fn ensure(tx: &mut Tx<'_>, project: &str, now: Timestamp) -> Result<(), Error> {
    default_of(tx, project, now).map(|_| ())
}

pub(crate) fn seen(tx: &mut Tx<'_>, caller: &Caller, id: SecurityGroupId) -> Result<Group, Error> {
    let group = rows::find(tx, id)?.filter(|group| visible(caller, Reach::of(caller), group));
    Ok(group.ok_or_else(|| not_found(KIND, id))?)
}

fn visible(caller: &Caller, reach: Reach<'_>, group: &Group) -> bool {
    reach.covers(&group.project) && targets::group(group).allows(caller, "get_security_group")
}

/// Checks that a port of the project may use the group, and protects it from concurrent deletion.
pub(crate) fn usable(
    tx: &mut Tx<'_>,
    caller: &Caller,
    project: &str,
    id: SecurityGroupId,
) -> Result<(), Error> {
    let group = rows::find(tx, id)?;
    let group = group.filter(|group| group.project == project || caller.is_admin());
    if group.is_none() {
        return Err(not_found(KIND, id).into());
    }
    Ok(rows::touch(tx, id)?)
}

fn is_default(group: &Group) -> bool {
    group.text("name") == "default"
}

pub(crate) fn create(
    tx: &mut Tx<'_>,
    caller: &Caller,
    sent: &Body,
    now: Timestamp,
) -> Result<Group, Error> {
    let project = owner(caller, sent)?;
    let body = of_new(ATTRIBUTES, sent)?;
    let mut set = body.clone();
    set.retain(|name, _| sent.contains_key(name));
    permitted(
        ATTRIBUTES,
        "create_security_group",
        caller,
        &set,
        &targets::new_group(&project).sent(&body),
    )?;
    default_of(tx, &project, now)?;
    if body["name"] == "default" {
        return Err(refused(
            Kind::Conflict,
            "SecurityGroupDefaultAlreadyExists",
            "Default security group already exists.",
        )
        .into());
    }
    quotas::check(tx, &project, quotas::GROUP, 1)?;
    quotas::check(tx, &project, quotas::RULE, 2)?;
    let group = Record::new(&project, body, now);
    rows::insert(tx, &group, None)?;
    for version in ["IPv4", "IPv6"] {
        rules::allow(tx, &group, "egress", version, None, now)?;
    }
    Ok(group)
}

pub(crate) fn update(
    tx: &mut Tx<'_>,
    caller: &Caller,
    id: SecurityGroupId,
    sent: &Body,
    now: Timestamp,
) -> Result<Group, Error> {
    let mut group = seen(tx, caller, id)?;
    let rule = "update_security_group";
    targets::group(&group).may(caller, rule)?;
    let set = of_change(ATTRIBUTES, sent)?;
    permitted(ATTRIBUTES, rule, caller, &set, &targets::group(&group).sent(&set))?;
    if set.contains_key("name") && (is_default(&group) || set["name"] == "default") {
        return Err(refused(
            Kind::Conflict,
            "SecurityGroupCannotUpdateDefault",
            "Updating default security group not allowed.",
        )
        .into());
    }
    if set.contains_key("stateful") && ports::has_group(tx, id)? {
        return Err(in_use(id).into());
    }
    if set.contains_key("name") {
        // The guests' metadata contains the names of their groups.
        changes::record(tx, NetworkChange::Rules(id))?;
    }
    group.change(set, now);
    rows::update(tx, &group)?;
    Ok(group)
}

fn in_use(id: SecurityGroupId) -> Refusal {
    refused(Kind::Conflict, "SecurityGroupInUse", format!("Security Group {id} in use."))
}

pub(crate) fn delete(
    tx: &mut Tx<'_>,
    caller: &Caller,
    id: SecurityGroupId,
    now: Timestamp,
) -> Result<(), Error> {
    let group = seen(tx, caller, id)?;
    targets::group(&group).may(caller, "delete_security_group")?;
    if ports::has_group(tx, id)? {
        return Err(in_use(id).into());
    }
    if is_default(&group) && !caller.is_admin() {
        return Err(refused(
            Kind::Conflict,
            "SecurityGroupCannotRemoveDefault",
            "Insufficient rights for removing default security group.",
        )
        .into());
    }
    // Creating a rule that references the group also touches it, so no such rule appears
    // concurrently.
    rows::touch(tx, id)?;
    for other in rows::referencing(tx, id)? {
        changes::record(tx, NetworkChange::Rules(other))?;
        rows::revise(tx, other, now)?;
    }
    Ok(rows::delete(tx, id)?)
}

pub(crate) fn views(tx: &mut Tx<'_>, caller: &Caller) -> Result<Vec<Body>, Error> {
    let reach = Reach::of(caller);
    let all = rows::list_rules(tx, reach.viewer())?;
    let mut groups = rows::list(tx, reach.viewer())?;
    groups.retain(|group| visible(caller, reach, group));
    Ok(groups.iter().map(|group| view(group, all.iter().filter(|r| r.group == group.id))).collect())
}

pub(crate) fn shown(tx: &mut Tx<'_>, group: &Group) -> Result<Body, Error> {
    let all = rows::rules_of(tx, group.id)?;
    Ok(view(group, all.iter()))
}

fn view<'a>(group: &Group, all: impl Iterator<Item = &'a Rule>) -> Body {
    let mut view = group.view();
    view.insert("shared".into(), json!(false));
    let all: Vec<Value> = all.map(|rule| rules::view(rule).into()).collect();
    view.insert("security_group_rules".into(), all.into());
    view
}

/// The groups of a project by name or id, for a server's ports.
pub(crate) fn named(
    tx: &mut Tx<'_>,
    project: &str,
    names: &[String],
    now: Timestamp,
) -> Result<Vec<SecurityGroupId>, Error> {
    let mut ids = Vec::new();
    let mut all = None;
    for name in names {
        let id = if name == "default" {
            default_of(tx, project, now)?
        } else {
            let all = match &mut all {
                Some(all) => all,
                none => none.insert(rows::list(tx, Some(project))?),
            };
            let by_id = all.iter().find(|group| group.id.to_string() == *name);
            let mut by_name = all.iter().filter(|group| group.text("name") == name);
            match (by_id, by_name.next(), by_name.next()) {
                (Some(group), ..) | (None, Some(group), None) => group.id,
                (None, Some(_), Some(_)) => {
                    // Nova: `NoUniqueMatch`.
                    return Err(Refusal::conflict(format!(
                        "Multiple security groups found matching '{}'. Use an ID to be more specific.",
                        name.escape_debug()
                    ))
                    .into());
                }
                (None, None, _) => return Err(not_found(KIND, name.escape_debug()).into()),
            }
        };
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    Ok(ids)
}
