//! Users and their passwords.

use std::net::IpAddr;

use jiff::Timestamp;
use kilonova_wire::time;
use serde_json::Value;

use super::{Fields, extras, flag, named, only_domain, same_domain, stripped_name, text};
use crate::db::lockouts;
use crate::db::users::{self, User};
use crate::hashing::{self, Party};
use crate::{Error, Identity, new_id};

const LONGEST: usize = 255;
const KNOWN: [&str; 10] = [
    "id",
    "name",
    "enabled",
    "password",
    "original_password",
    "default_project_id",
    "domain_id",
    "options",
    "links",
    "password_expires_at",
];

impl Identity {
    pub(crate) async fn user(&self, id: &str) -> Result<User, Error> {
        let id = id.to_owned();
        self.read(move |tx| users::by_id(tx, &id)?.ok_or_else(Error::not_found("user", &id))).await
    }

    pub(crate) async fn users(
        &self,
        name: Option<String>,
        enabled: Option<bool>,
    ) -> Result<Vec<User>, Error> {
        self.read(move |tx| Ok(users::list(tx, name.as_deref(), enabled)?)).await
    }

    pub(crate) async fn create_user(&self, fields: Fields, peer: IpAddr) -> Result<User, Error> {
        let mut user = User {
            id: new_id(),
            name: String::new(),
            enabled: true,
            default_project_id: None,
            tokens_valid_from: Timestamp::UNIX_EPOCH,
            extra: Fields::new(),
            options: Fields::new(),
        };
        only_domain(&fields)?;
        apply(&mut user, &fields)?;
        let hash = self.hashed(&user.id, &fields, peer).await?;
        self.change(move |tx| {
            users::insert(tx, &user, hash.as_deref()).map_err(Error::taken("user", &user.name))?;
            Ok(user.clone())
        })
        .await
    }

    /// Updates a user. A new password, or disabling the user, revokes all of the user's tokens; removing the
    /// password with null does not (`update_user` of `keystone/identity/core.py`). As in Keystone, the user's
    /// application credentials stay: none works while the user is disabled.
    pub(crate) async fn update_user(
        &self,
        id: &str,
        fields: Fields,
        peer: IpAddr,
    ) -> Result<User, Error> {
        let id = id.to_owned();
        let hash = self.hashed(&id, &fields, peer).await?;
        let sets_password = fields.contains_key("password");
        self.change(move |tx| {
            let mut user = users::by_id(tx, &id)?.ok_or_else(Error::not_found("user", &id))?;
            same_domain(&fields)?;
            // Of all objects only users have an id that null would change (`update_user` of `keystone/identity/core.py`).
            if fields.get("id").is_some_and(Value::is_null) {
                return Err(Error::Invalid("Cannot change user ID".into()));
            }
            apply(&mut user, &fields)?;
            if hash.is_some() || !user.enabled {
                user.tokens_valid_from = time::now();
            }
            users::update(tx, &user).map_err(Error::taken("user", &user.name))?;
            if fields.get("enabled") == Some(&Value::Bool(true)) || hash.is_some() {
                lockouts::clear(tx, &id)?;
            }
            if sets_password {
                users::set_password(tx, &id, hash.as_deref(), user.tokens_valid_from)?;
            }
            Ok(user)
        })
        .await
    }

    async fn hashed(
        &self,
        user: &str,
        fields: &Fields,
        peer: IpAddr,
    ) -> Result<Option<String>, Error> {
        let Some(password) = password(fields, "password")? else { return Ok(None) };
        let party = Party { address: peer, user: user.to_owned() };
        Ok(Some(self.inner.hasher.hash(party, password).await?))
    }

    /// Changes a user's own password; requires the old one, which is checked like that of a login. The caller need not be
    /// authenticated, so nothing else reveals whether the user exists. Nothing changes if an administrator has set another
    /// password, or disabled or locked the user, since that check.
    pub(crate) async fn change_password(
        &self,
        id: &str,
        fields: Fields,
        peer: IpAddr,
    ) -> Result<(), Error> {
        let missing = |key| Error::Invalid(format!("{key} is required."));
        let old =
            text(&fields, "original_password")?.ok_or_else(|| missing("original_password"))?;
        let new = password(&fields, "password")?.ok_or_else(|| missing("password"))?;
        let (id, lookup) = (id.to_owned(), id.to_owned());
        let Some(user) = self.read(move |tx| Ok(users::by_id(tx, &lookup)?)).await? else {
            self.inner.hasher.refuse().await?;
            return Err(Error::Unauthorized("no such user"));
        };
        let locked = refuse_locked(&user);
        let checked = self.check_password(user, old, peer).await?;
        locked?;
        let party = Party { address: peer, user: id.clone() };
        let hash = self.inner.hasher.hash(party, new).await?;
        self.change(move |tx| {
            if let Some(user) = users::by_id(tx, &id)? {
                refuse_locked(&user)?;
            }
            match users::replace_password(tx, &id, &checked, &hash, time::now())? {
                true => Ok(()),
                false => Err(Error::Unauthorized("the user has changed since the check")),
            }
        })
        .await
    }

    pub(crate) async fn delete_user(&self, id: &str) -> Result<(), Error> {
        let id = id.to_owned();
        self.change(move |tx| Error::unless_found(users::delete(tx, &id)?, "user", &id)).await
    }
}

/// `PasswordSelfServiceDisabled` of `keystone/exception.py`.
const SELF_SERVICE_DISABLED: &str = "You cannot change your password at this time due to password policy disallowing \
     password changes. Please contact your administrator to reset your password.";

/// Refuses a change of a password that is locked.
fn refuse_locked(user: &User) -> Result<(), Error> {
    match user.options.get("lock_password") {
        Some(Value::Bool(true)) => Err(Error::Invalid(SELF_SERVICE_DISABLED.into())),
        _ => Ok(()),
    }
}

fn apply(user: &mut User, fields: &Fields) -> Result<(), Error> {
    if let Some(name) = stripped_name(fields)? {
        user.name = name;
    }
    named(&user.name, LONGEST)?;
    if let Some(enabled) = flag(fields, "enabled")? {
        user.enabled = enabled;
    }
    if fields.contains_key("default_project_id") {
        user.default_project_id = text(fields, "default_project_id")?;
    }
    match fields.get("options") {
        None => {}
        Some(Value::Object(options)) => apply_options(&mut user.options, options)?,
        Some(_) => return Err(Error::Invalid("options must be an object.".into())),
    }
    extras(&mut user.extra, fields, &KNOWN)
}

/// Keystone's user options that are true or false (`keystone/identity/backends/resource_options.py`). Passwords and
/// inactive users do not expire here, so the options about expiry are stored without effect. `multi_factor_auth_enabled`
/// has one only for users with rules, in Keystone too.
const OPTIONS: [&str; 6] = [
    "ignore_change_password_upon_first_use",
    "ignore_password_expiry",
    "ignore_lockout_failure_attempts",
    "ignore_user_inactivity",
    "lock_password",
    "multi_factor_auth_enabled",
];

/// The methods that a login of the user must combine.
const RULES: &str = "multi_factor_auth_rules";

/// Applies the options of a request; null removes an option. Rules are refused: a login that ignored them would be less
/// secure than the caller intends. An empty list has no rule.
fn apply_options(stored: &mut Fields, options: &Fields) -> Result<(), Error> {
    for (key, value) in options {
        if key == RULES {
            match value {
                Value::Null => drop(stored.remove(key)),
                Value::Array(rules) if rules.is_empty() => {
                    drop(stored.insert(key.clone(), value.clone()));
                }
                _ => {
                    return Err(Error::Invalid(format!(
                        "{key} must be null or an empty list: logins do not check rules for several methods, and a stored \
                         rule would not protect the user."
                    )));
                }
            }
            continue;
        }
        if !OPTIONS.contains(&key.as_str()) {
            return Err(Error::Invalid(format!(
                "{} is not a supported option of a user.",
                key.escape_debug()
            )));
        }
        match value {
            Value::Null => drop(stored.remove(key)),
            Value::Bool(_) => drop(stored.insert(key.clone(), value.clone())),
            _ => return Err(Error::Invalid(format!("{key} must be true or false."))),
        }
    }
    Ok(())
}

fn password(fields: &Fields, key: &str) -> Result<Option<String>, Error> {
    let password = match fields.get(key) {
        None | Some(serde_json::Value::Null) => return Ok(None),
        Some(serde_json::Value::String(password)) => password,
        Some(_) => return Err(Error::Invalid(format!("{key} must be a string."))),
    };
    if password.is_empty() || password.len() > hashing::LONGEST {
        return Err(Error::Invalid(format!("{key} must have 1 to {} bytes.", hashing::LONGEST)));
    }
    Ok(Some(password.clone()))
}
