//! Parses the body of a login request.

use kilonova_wire::Refusal;
use serde_json::Value;

use crate::app::login::{Named, Proof, RequestedScope};
use crate::{DOMAIN_ID, DOMAIN_NAME};

/// The proof of identity and the requested scope.
pub(super) fn read(body: &Value) -> Result<(Proof, RequestedScope), Refusal> {
    let auth = object(body, "auth")?;
    let identity = object(auth, "identity")?;
    let methods = identity
        .get("methods")
        .and_then(Value::as_array)
        .ok_or_else(|| missing("methods", "identity"))?;
    check_supported(identity, methods)?;
    let [Value::String(method)] = methods.as_slice() else {
        return Err(Refusal::bad_request(
            "methods must name exactly one of password, token and application_credential.",
        ));
    };
    let proof = match method.as_str() {
        "password" => password(object(identity, "password")?)?,
        "token" => Proof::Token(string(object(identity, "token")?, "id", "token")?),
        "application_credential" => credential(object(identity, "application_credential")?)?,
        _ => {
            return Err(Refusal::bad_request(
                "methods must name exactly one of password, token and application_credential.",
            ));
        }
    };
    Ok((proof, scope(auth)?))
}

/// The supported methods of a login.
const METHODS: [&str; 3] = ["password", "token", "application_credential"];

/// Refuses a method whose object is missing, and otherwise, with a 401, an unsupported method. This is
/// the order of `_validate_auth_methods` in `keystone/auth/core.py`.
fn check_supported(identity: &Value, methods: &[Value]) -> Result<(), Refusal> {
    let named = || methods.iter().filter_map(Value::as_str);
    if let Some(without) = named().find(|method| identity.get(method).is_none()) {
        return Err(missing(without, "identity"));
    }
    if named().any(|method| !METHODS.contains(&method)) {
        return Err(Refusal::unauthorized("Attempted to authenticate with an unsupported method."));
    }
    Ok(())
}

fn password(value: &Value) -> Result<Proof, Refusal> {
    let user = object(value, "user")?;
    Ok(Proof::Password { user: named(user, "user")?, password: string(user, "password", "user")? })
}

fn credential(value: &Value) -> Result<Proof, Refusal> {
    const WHERE: &str = "application_credential";
    let secret = string(value, "secret", WHERE)?;
    if value.get("id").is_some() {
        return Ok(match known(string(value, "id", WHERE)?) {
            Some(id) => Proof::CredentialById { id, secret },
            None => {
                Proof::CredentialByName { user: Named::UnknownDomain, name: String::new(), secret }
            }
        });
    }
    let user = named(object(value, "user")?, "user")?;
    Ok(match known(string(value, "name", WHERE)?) {
        Some(name) => Proof::CredentialByName { user, name, secret },
        None => Proof::CredentialByName { user: Named::UnknownDomain, name: String::new(), secret },
    })
}

fn scope(auth: &Value) -> Result<RequestedScope, Refusal> {
    let scope = match auth.get("scope") {
        None | Some(Value::Null) => return Ok(RequestedScope::Default),
        Some(Value::String(word)) if word == "unscoped" => return Ok(RequestedScope::Unscoped),
        Some(Value::Object(scope)) => scope,
        Some(_) => return Err(Refusal::bad_request("scope must be an object.")),
    };
    let mut parts = scope.iter();
    let (Some((kind, part)), None) = (parts.next(), parts.next()) else {
        return Err(Refusal::bad_request(
            "Expecting to find system, project, domain, OS-TRUST:trust or unscoped in scope, and \
             one of them.",
        ));
    };
    match kind.as_str() {
        "unscoped" => Ok(RequestedScope::Unscoped),
        "project" => Ok(RequestedScope::Project(named(part, "project")?)),
        "domain" => Ok(match domain_is_ours(part)? {
            true => RequestedScope::Domain,
            false => RequestedScope::UnknownDomain,
        }),
        "system" => match part.get("all") {
            Some(Value::Bool(true)) => Ok(RequestedScope::System),
            _ => Err(Refusal::bad_request("The system scope must be {\"all\": true}.")),
        },
        "OS-TRUST:trust" => {
            let id = known(string(part, "id", "OS-TRUST:trust")?);
            Ok(id.map_or(RequestedScope::UnknownDomain, RequestedScope::Trust))
        }
        _ => Err(Refusal::bad_request(
            "Expecting to find system, project, domain, OS-TRUST:trust or unscoped in scope.",
        )),
    }
}

/// True if `domain` refers, by id or name, to the only domain.
fn domain_is_ours(domain: &Value) -> Result<bool, Refusal> {
    match (domain.get("id"), domain.get("name")) {
        (Some(Value::String(id)), _) => Ok(id == DOMAIN_ID),
        (None, Some(Value::String(name))) => Ok(name.eq_ignore_ascii_case(DOMAIN_NAME)),
        _ => Err(missing("id or name", "domain")),
    }
}

/// Parses a reference to a user or a project: by id, or by name and domain.
fn named(value: &Value, what: &str) -> Result<Named, Refusal> {
    if value.get("id").is_some() {
        return Ok(known(string(value, "id", what)?).map_or(Named::UnknownDomain, Named::Id));
    }
    let name = string(value, "name", what)?;
    let ours = domain_is_ours(object(value, "domain")?)?;
    Ok(known(name).filter(|_| ours).map_or(Named::UnknownDomain, Named::Name))
}

/// Returns `None` for text with control characters: no name contains any, and PostgreSQL rejects NUL.
fn known(text: String) -> Option<String> {
    (!text.chars().any(char::is_control)).then_some(text)
}

fn object<'a>(value: &'a Value, key: &str) -> Result<&'a Value, Refusal> {
    value
        .get(key)
        .filter(|inner| inner.is_object())
        .ok_or_else(|| Refusal::bad_request(format!("Expecting to find {key} in request body.")))
}

fn string(value: &Value, key: &str, within: &str) -> Result<String, Refusal> {
    value.get(key).and_then(Value::as_str).map(str::to_owned).ok_or_else(|| missing(key, within))
}

fn missing(key: &str, within: &str) -> Refusal {
    Refusal::bad_request(format!("Expecting to find {key} in {within}."))
}
