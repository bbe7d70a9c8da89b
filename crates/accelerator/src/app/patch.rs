//! The body of `PATCH /v2/accelerator_requests`: a map from ARQ to a list of JSON-patch steps,
//! which either all add (bind) or all remove (unbind).
//!
//! Pure. The order of the checks and their messages are Cyborg's. The caller checks the permission
//! that [`sets_project`] reports.

use kilonova_ids::{ArqId, HostName, ProviderId, ServerId, parse_uuid_like};
use newtype_uuid::GenericUuid;
use serde_json::{Map, Value};

use super::grammar::shown;
use crate::Error;

const PATHS: [&str; 4] = ["/hostname", "/device_rp_uuid", "/instance_uuid", "/project_id"];

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

/// The operation that a PATCH requests.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Patch {
    /// Bind all of them, or none.
    Bind(Vec<Bind>),
    /// Unbind all of them, or none.
    Unbind(Vec<ArqId>),
}

fn refuse<T>(reason: impl std::fmt::Display) -> Result<T, Error> {
    Err(Error::Invalid(format!("Couldn't apply patch. Reason: {reason}")))
}

/// True if any step names `/project_id`, which requires a later microversion and an administrator.
pub(crate) fn sets_project(body: &Value) -> bool {
    let Some(arqs) = body.as_object() else { return false };
    arqs.values()
        .filter_map(Value::as_array)
        .flatten()
        .any(|step| step.get("path").and_then(Value::as_str) == Some("/project_id"))
}

/// Checks that the steps all add or all remove. This precedes every other check.
pub(crate) fn check_ops(body: &Value) -> Result<bool, Error> {
    let Some(arqs) = body.as_object() else {
        return refuse("The body must be an object of accelerator request uuids");
    };
    let mut adds = None;
    for steps in arqs.values() {
        let Some(steps) = steps.as_array() else {
            return refuse("The steps of an accelerator request must be a list");
        };
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
        if steps.is_empty() {
            return refuse("An accelerator request without steps");
        }
    }
    adds.map_or_else(|| refuse("No accelerator request is named"), Ok)
}

/// Parses the whole body.
pub(crate) fn parse(body: &Value) -> Result<Patch, Error> {
    let adds = check_ops(body)?;
    let mut binds = Vec::new();
    let mut unbinds = Vec::new();
    for (key, steps) in body.as_object().into_iter().flatten() {
        let Some(arq) = parse_uuid_like(key) else {
            return refuse(format!("{} is not the uuid of an accelerator request", shown(key)));
        };
        let steps = steps.as_array().map_or(&[][..], Vec::as_slice);
        for step in steps {
            check_step(step)?;
        }
        if !adds {
            unbinds.push(arq);
            continue;
        }
        let absent: Vec<&str> = PATHS[..3]
            .iter()
            .filter(|path| value(steps, path).is_none())
            .map(|path| &path[1..])
            .collect();
        if !absent.is_empty() {
            return refuse(format!("Fields absent in patch {}", absent.join(",")));
        }
        binds.push(Bind {
            arq,
            host: HostName::verbatim(text(steps, "/hostname")?),
            provider: uuid(steps, "/device_rp_uuid")?,
            server: uuid(steps, "/instance_uuid")?,
            project: match value(steps, "/project_id") {
                None => None,
                Some(_) => Some(text(steps, "/project_id")?),
            },
        });
    }
    Ok(if adds { Patch::Bind(binds) } else { Patch::Unbind(unbinds) })
}

fn check_step(step: &Value) -> Result<(), Error> {
    let empty = Map::new();
    let fields = step.as_object().unwrap_or(&empty);
    if let Some(field) = fields.keys().find(|key| !["path", "op", "value"].contains(&key.as_str()))
    {
        return refuse(format!("Unknown field {} in a step", shown(field)));
    }
    match fields.get("path").and_then(Value::as_str) {
        Some(path) if PATHS.contains(&path) => Ok(()),
        Some(path) => refuse(format!("Invalid path in patch {}", shown(path))),
        None => refuse("Every step needs a path"),
    }
}

fn value<'a>(steps: &'a [Value], path: &str) -> Option<&'a Value> {
    let of = |step: &&Value| step.get("path").and_then(Value::as_str) == Some(path);
    steps.iter().rev().find(of).map(|step| step.get("value").unwrap_or(&Value::Null))
}

fn text(steps: &[Value], path: &str) -> Result<String, Error> {
    match value(steps, path) {
        Some(Value::String(text))
            if !text.is_empty() && text.len() <= 255 && !text.chars().any(char::is_control) =>
        {
            Ok(text.clone())
        }
        _ => refuse(format!("The value of {path} must be a printable string of 1 to 255 bytes")),
    }
}

fn uuid<T: GenericUuid>(steps: &[Value], path: &str) -> Result<T, Error> {
    match value(steps, path).and_then(Value::as_str).and_then(parse_uuid_like) {
        Some(uuid) => Ok(uuid),
        None => refuse(format!("The value of {path} must be a uuid")),
    }
}
