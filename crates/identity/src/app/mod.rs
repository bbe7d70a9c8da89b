//! The identity service's operations. This module contains no HTTP and no SQL.

pub(crate) mod assignments;
mod bootstrap;
pub(crate) mod catalog;
pub(crate) mod credentials;
mod domains;
pub(crate) mod ec2;
mod groups;
mod implied;
pub(crate) mod limits;
mod lockout;
pub(crate) mod login;
pub(crate) mod objects;
mod projects;
mod roles;
pub(crate) mod secrets;
pub(crate) mod session;
pub(crate) mod trusts;
mod users;

pub use bootstrap::has_admin;
use jiff::Timestamp;
use kilonova_wire::text::check_name;
use kilonova_wire::time;
pub use lockout::Lockout;
use serde_json::{Map, Value};

use crate::{DOMAIN_ID, Error};

/// The fields of a request body.
pub(crate) type Fields = Map<String, Value>;

/// Maximum number of roles that a request for a trust or an application credential may name.
const MOST_ROLES: usize = 100;

/// Refuses a list of more than [`MOST_ROLES`] roles.
fn check_roles(requested: &[Value]) -> Result<(), Error> {
    if requested.len() > MOST_ROLES {
        return Err(Error::Invalid(format!("roles may have at most {MOST_ROLES} elements.")));
    }
    Ok(())
}

fn named(name: &str, max: usize) -> Result<(), Error> {
    check_name("name", name, max).map_err(|refusal| Error::Invalid(refusal.message))
}

pub(crate) fn text(fields: &Fields, key: &str) -> Result<Option<String>, Error> {
    match fields.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.chars().any(|c| c == '\0') => {
            Err(Error::Invalid(format!("{key} contains a NUL character.")))
        }
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(Error::Invalid(format!("{key} must be a string."))),
    }
}

/// The name of a user, a group or a project in a request, without surrounding white space, as Keystone stores it. Roles keep
/// theirs.
fn stripped_name(fields: &Fields) -> Result<Option<String>, Error> {
    Ok(text(fields, "name")?.map(|name| name.trim().to_owned()))
}

fn flag(fields: &Fields, key: &str) -> Result<Option<bool>, Error> {
    match fields.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(*flag)),
        Some(_) => Err(Error::Invalid(format!("{key} must be true or false."))),
    }
}

/// Accepts `domain_id` of a new resource only if it is the id of the default domain.
fn only_domain(fields: &Fields) -> Result<(), Error> {
    match text(fields, "domain_id")? {
        Some(id) if id != DOMAIN_ID => Err(Error::NotFound("domain", id)),
        _ => Ok(()),
    }
}

/// Refuses a change of `domain_id`, also to null (`_require_matching_domain_id` of `keystone/identity/core.py`).
fn same_domain(fields: &Fields) -> Result<(), Error> {
    let cleared = fields.get("domain_id").is_some_and(Value::is_null);
    match only_domain(fields) {
        Ok(()) if !cleared => Ok(()),
        Ok(()) | Err(Error::NotFound(..)) => Err(Error::Invalid("Cannot change Domain ID".into())),
        Err(error) => Err(error),
    }
}

/// True if an update only resets `immutable`, the one change of an immutable resource that
/// `check_immutable_update` of `keystone/common/resource_options/options/immutable.py` allows.
fn only_unprotects(fields: &Fields) -> bool {
    let option = fields.get("options").and_then(|options| options.get("immutable"));
    fields.len() == 1 && matches!(option, Some(Value::Null | Value::Bool(false)))
}

/// The value of the option `immutable` after a request, if it is `now` before. It is the only option
/// of projects and roles.
fn immutable(now: bool, fields: &Fields, kind: &str) -> Result<bool, Error> {
    let options = match fields.get("options") {
        None => return Ok(now),
        Some(Value::Object(options)) => options,
        Some(_) => return Err(Error::Invalid("options must be an object.".into())),
    };
    if let Some(other) = options.keys().find(|key| *key != "immutable") {
        return Err(Error::Invalid(format!(
            "{} is not an option of a {kind}.",
            other.escape_debug()
        )));
    }
    match options.get("immutable") {
        None => Ok(now),
        Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(_) => Err(Error::Invalid("immutable must be true or false.".into())),
    }
}

/// Merges attributes that the service stores without interpreting them. As in Keystone, null is a value.
fn extras(extra: &mut Fields, fields: &Fields, known: &[&str]) -> Result<(), Error> {
    for (key, value) in fields.iter().filter(|(key, _)| !known.contains(&key.as_str())) {
        if key.contains('\0') || value.to_string().contains("\\u0000") {
            return Err(Error::Invalid(format!(
                "{} contains a NUL character.",
                key.escape_debug()
            )));
        }
        extra.insert(key.clone(), value.clone());
    }
    Ok(())
}

/// `expires_at`, which must be in the future.
fn expiry(fields: &Fields) -> Result<Option<Timestamp>, Error> {
    let Some(shown) = text(fields, "expires_at")? else { return Ok(None) };
    match time::parse(&shown) {
        Some(at) if at > time::now() => Ok(Some(at)),
        Some(_) => Err(Error::Invalid("expires_at is in the past.".into())),
        None => {
            Err(Error::Invalid("expires_at must be a time such as 2027-01-31T12:00:00.".into()))
        }
    }
}
