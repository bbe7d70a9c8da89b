//! The body of `PATCH /v2/accelerator_requests`: a map from ARQ to a list of JSON-patch steps. The
//! steps of one ARQ either all add (bind) or all remove (unbind).
//!
//! Pure. The order of the checks and their messages are Cyborg's (`_validate_arq_patch` of
//! `api/controllers/v2/arqs.py`). The caller checks the permission that [`sets_project`] reports.

use std::collections::BTreeSet;

use kilonova_ids::{ArqId, HostName, ProviderId, ServerId, parse_uuid_like};
use newtype_uuid::GenericUuid;
use serde_json::{Map, Value};

use super::grammar::shown;
use crate::Error;

const FIELDS: [&str; 4] = ["hostname", "device_rp_uuid", "instance_uuid", PROJECT];
const PROJECT: &str = "project_id";

/// The requested binding of one ARQ.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Bind {
    pub arq: ArqId,
    pub host: HostName,
    pub provider: ProviderId,
    pub server: ServerId,
    /// A project other than the ARQ's.
    pub project: Option<String>,
}

/// The operations that a PATCH requests: all of them, or none.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Patch {
    pub unbinds: Vec<ArqId>,
    pub binds: Vec<Bind>,
}

fn refuse<T>(reason: impl std::fmt::Display) -> Result<T, Error> {
    Err(Error::Invalid(format!("Couldn't apply patch. Reason: {reason}")))
}

/// The field that a step names. As upstream, its path may have any number of leading slashes.
fn field(step: &Value) -> Option<&str> {
    step.get("path").and_then(Value::as_str).map(|path| path.trim_start_matches('/'))
}

/// True if any step names `project_id`, which requires a later microversion and an administrator.
pub(crate) fn sets_project(body: &Value) -> bool {
    let Some(arqs) = body.as_object() else { return false };
    arqs.values().filter_map(Value::as_array).flatten().any(|step| field(step) == Some(PROJECT))
}

/// Checks that the steps of each ARQ all add or all remove. This precedes every other check.
pub(crate) fn check_ops(body: &Value) -> Result<(), Error> {
    let Some(arqs) = body.as_object() else {
        return refuse("The body must be an object of accelerator request uuids");
    };
    for steps in arqs.values() {
        let Some(steps) = steps.as_array() else {
            return refuse("The steps of an accelerator request must be a list");
        };
        adds(steps)?;
    }
    if arqs.is_empty() {
        return refuse("No accelerator request is named");
    }
    Ok(())
}

/// True if the steps of an ARQ add, false if they remove.
fn adds(steps: &[Value]) -> Result<bool, Error> {
    let mut adds = None;
    for step in steps {
        let op = match step.get("op").and_then(Value::as_str) {
            Some("add") => true,
            Some("remove") => false,
            _ => return refuse("Every op must be add or remove"),
        };
        if *adds.get_or_insert(op) != op {
            return refuse("Every op must be add or remove");
        }
    }
    adds.map_or_else(|| refuse("An accelerator request without steps"), Ok)
}

/// Parses the whole body.
pub(crate) fn parse(body: &Value) -> Result<Patch, Error> {
    check_ops(body)?;
    let mut patch = Patch::default();
    let mut seen: BTreeSet<ArqId> = BTreeSet::new();
    for (key, steps) in body.as_object().into_iter().flatten() {
        let Some(arq) = parse_uuid_like(key) else {
            return refuse(format!("{} is not the uuid of an accelerator request", shown(key)));
        };
        // Two spellings of one UUID would be two changes of one request.
        if !seen.insert(arq) {
            return refuse(format!("{} names an accelerator request again", shown(key)));
        }
        let steps = steps.as_array().map_or(&[][..], Vec::as_slice);
        for step in steps {
            check_step(step)?;
        }
        if !adds(steps)? {
            patch.unbinds.push(arq);
            continue;
        }
        let needed = FIELDS.into_iter().filter(|name| *name != PROJECT);
        let absent: Vec<&str> = needed.filter(|name| value(steps, name).is_none()).collect();
        if !absent.is_empty() {
            return refuse(format!("Fields absent in patch {}", absent.join(",")));
        }
        patch.binds.push(Bind {
            arq,
            host: HostName::verbatim(text(steps, "hostname")?),
            provider: uuid(steps, "device_rp_uuid")?,
            server: uuid(steps, "instance_uuid")?,
            project: match value(steps, PROJECT) {
                None => None,
                Some(_) => Some(text(steps, PROJECT)?),
            },
        });
    }
    Ok(patch)
}

fn check_step(step: &Value) -> Result<(), Error> {
    let empty = Map::new();
    let fields = step.as_object().unwrap_or(&empty);
    if let Some(field) = fields.keys().find(|key| !["path", "op", "value"].contains(&key.as_str()))
    {
        return refuse(format!("Unknown field {} in a step", shown(field)));
    }
    match (field(step), fields.get("path").and_then(Value::as_str)) {
        (Some(name), _) if FIELDS.contains(&name) => Ok(()),
        (_, Some(path)) => refuse(format!("Invalid path in patch {}", shown(path))),
        (_, None) => refuse("Every step needs a path"),
    }
}

fn value<'a>(steps: &'a [Value], name: &str) -> Option<&'a Value> {
    steps
        .iter()
        .rev()
        .find(|step| field(step) == Some(name))
        .map(|step| step.get("value").unwrap_or(&Value::Null))
}

fn text(steps: &[Value], name: &str) -> Result<String, Error> {
    match value(steps, name) {
        Some(Value::String(text))
            if !text.is_empty() && text.len() <= 255 && !text.chars().any(char::is_control) =>
        {
            Ok(text.clone())
        }
        _ => refuse(format!("The value of /{name} must be a printable string of 1 to 255 bytes")),
    }
}

fn uuid<T: GenericUuid>(steps: &[Value], name: &str) -> Result<T, Error> {
    match value(steps, name).and_then(Value::as_str).and_then(parse_uuid_like) {
        Some(uuid) => Ok(uuid),
        None => refuse(format!("The value of /{name} must be a uuid")),
    }
}
