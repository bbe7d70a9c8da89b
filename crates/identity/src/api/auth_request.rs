//! Reading the body of a login.

use kilonova_wire::Fault;
use serde_json::Value;

use crate::app::login::{Named, Proof, Scope};
use crate::{DOMAIN_ID, DOMAIN_NAME};

/// The proof and the scope that a body asks for.
pub(super) fn read(body: &Value) -> Result<(Proof, Scope), Fault> {
    let auth = object(body, "auth")?;
    let identity = object(auth, "identity")?;
    let methods = identity
        .get("methods")
        .and_then(Value::as_array)
        .ok_or_else(|| missing("methods", "identity"))?;
    let [Value::String(method)] = methods.as_slice() else {
        return Err(Fault::bad_request(
            "methods has to name exactly one of password, token and application_credential.",
        ));
    };
    let proof = match method.as_str() {
        "password" => password(object(identity, "password")?)?,
        "token" => Proof::Token(string(object(identity, "token")?, "id", "token")?),
        "application_credential" => credential(object(identity, "application_credential")?)?,
        _ => {
            return Err(Fault::bad_request(
                "methods has to name exactly one of password, token and application_credential.",
            ));
        }
    };
    Ok((proof, scope(auth)?))
}

fn password(value: &Value) -> Result<Proof, Fault> {
    let user = object(value, "user")?;
    Ok(Proof::Password { user: named(user, "user")?, password: string(user, "password", "user")? })
}

fn credential(value: &Value) -> Result<Proof, Fault> {
    const WHERE: &str = "application_credential";
    let secret = string(value, "secret", WHERE)?;
    if value.get("id").is_some() {
        return Ok(match known(string(value, "id", WHERE)?) {
            Some(id) => Proof::CredentialById { id, secret },
            None => Proof::CredentialByName { user: Named::Elsewhere, name: String::new(), secret },
        });
    }
    let user = named(object(value, "user")?, "user")?;
    Ok(match known(string(value, "name", WHERE)?) {
        Some(name) => Proof::CredentialByName { user, name, secret },
        None => Proof::CredentialByName { user: Named::Elsewhere, name: String::new(), secret },
    })
}

fn scope(auth: &Value) -> Result<Scope, Fault> {
    match auth.get("scope") {
        None | Some(Value::Null) => Ok(Scope::Default),
        Some(Value::String(word)) if word == "unscoped" => Ok(Scope::Unscoped),
        Some(scope) if scope.get("unscoped").is_some() => Ok(Scope::Unscoped),
        Some(scope) if scope.get("project").is_some() => {
            Ok(Scope::Project(named(object(scope, "project")?, "project")?))
        }
        Some(_) => Err(Fault::bad_request(
            "A token can be for a project or unscoped; other scopes are not offered here.",
        )),
    }
}

/// A user or project by id, or by name and domain.
fn named(value: &Value, what: &str) -> Result<Named, Fault> {
    if value.get("id").is_some() {
        return Ok(known(string(value, "id", what)?).map_or(Named::Elsewhere, Named::Id));
    }
    let name = string(value, "name", what)?;
    let domain = object(value, "domain")?;
    let ours = match (domain.get("id"), domain.get("name")) {
        (Some(Value::String(id)), _) => id == DOMAIN_ID,
        (None, Some(Value::String(name))) => name.eq_ignore_ascii_case(DOMAIN_NAME),
        _ => return Err(missing("id or name", "domain")),
    };
    Ok(known(name).filter(|_| ours).map_or(Named::Elsewhere, Named::Name))
}

/// Nothing is named with a control character, and PostgreSQL takes no NUL.
fn known(text: String) -> Option<String> {
    (!text.chars().any(char::is_control)).then_some(text)
}

fn object<'a>(value: &'a Value, key: &str) -> Result<&'a Value, Fault> {
    value
        .get(key)
        .filter(|inner| inner.is_object())
        .ok_or_else(|| Fault::bad_request(format!("Expecting to find {key} in request body.")))
}

fn string(value: &Value, key: &str, within: &str) -> Result<String, Fault> {
    value.get(key).and_then(Value::as_str).map(str::to_owned).ok_or_else(|| missing(key, within))
}

fn missing(key: &str, within: &str) -> Fault {
    Fault::bad_request(format!("Expecting to find {key} in {within}."))
}
