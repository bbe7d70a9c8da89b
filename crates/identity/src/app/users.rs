//! Users: made, changed, removed, and their passwords.

use kilonova_wire::time::now_micros;

use super::{Fields, extras, flag, named, only_domain, text};
use crate::db::users::{self, User};
use crate::{Error, Identity, new_id, secret};

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
        self.read(move |tx| {
            users::by_id(tx, &id)?.ok_or_else(|| Error::NotFound("user", id.clone()))
        })
        .await
    }

    pub(crate) async fn users(
        &self,
        name: Option<String>,
        enabled: Option<bool>,
        only: Option<String>,
    ) -> Result<Vec<User>, Error> {
        self.read(move |tx| Ok(users::list(tx, name.as_deref(), enabled, only.as_deref())?)).await
    }

    pub(crate) async fn create_user(&self, fields: Fields) -> Result<User, Error> {
        let mut user = User {
            id: new_id(),
            name: String::new(),
            enabled: true,
            default_project_id: None,
            tokens_valid_from: 0,
            extra: Fields::new(),
        };
        apply(&mut user, &fields)?;
        let hash = match password(&fields, "password")? {
            Some(password) => Some(self.inner.hasher.hash(password).await?),
            None => None,
        };
        self.change(move |tx| {
            users::insert(tx, &user, hash.as_deref()).map_err(Error::taken("user", &user.name))?;
            Ok(user.clone())
        })
        .await
    }

    /// A new password, and disabling, end all tokens of the user.
    pub(crate) async fn update_user(&self, id: &str, fields: Fields) -> Result<User, Error> {
        let id = id.to_owned();
        let hash = match password(&fields, "password")? {
            Some(password) => Some(self.inner.hasher.hash(password).await?),
            None => None,
        };
        self.change(move |tx| {
            let mut user =
                users::by_id(tx, &id)?.ok_or_else(|| Error::NotFound("user", id.clone()))?;
            apply(&mut user, &fields)?;
            if hash.is_some() || !user.enabled {
                user.tokens_valid_from = now_micros();
            }
            users::update(tx, &user).map_err(Error::taken("user", &user.name))?;
            if let Some(hash) = &hash {
                users::set_password(tx, &id, hash, user.tokens_valid_from)?;
            }
            Ok(user)
        })
        .await
    }

    /// The user's own way to a new password: he has to know the old one.
    pub(crate) async fn change_password(&self, id: &str, fields: Fields) -> Result<(), Error> {
        let missing = |key| Error::Invalid(format!("{key} is missing."));
        let old =
            text(&fields, "original_password")?.ok_or_else(|| missing("original_password"))?;
        let new = password(&fields, "password")?.ok_or_else(|| missing("password"))?;
        let (id, wanted) = (id.to_owned(), id.to_owned());
        let stored = self
            .read(move |tx| {
                let enabled = users::by_id(tx, &wanted)?.is_some_and(|user| user.enabled);
                Ok(if enabled { users::password_hash(tx, &wanted)? } else { None })
            })
            .await?;
        if !self.inner.hasher.verify(old, stored).await? {
            return Err(Error::Unauthorized("the original password is wrong"));
        }
        let hash = self.inner.hasher.hash(new).await?;
        self.change(move |tx| Ok(users::set_password(tx, &id, &hash, now_micros())?)).await
    }

    pub(crate) async fn delete_user(&self, id: &str) -> Result<(), Error> {
        let id = id.to_owned();
        self.change(move |tx| {
            if users::delete(tx, &id)? { Ok(()) } else { Err(Error::NotFound("user", id.clone())) }
        })
        .await
    }
}

fn apply(user: &mut User, fields: &Fields) -> Result<(), Error> {
    only_domain(fields)?;
    if let Some(name) = text(fields, "name")? {
        user.name = name;
    }
    named(&user.name, LONGEST)?;
    if let Some(enabled) = flag(fields, "enabled")? {
        user.enabled = enabled;
    }
    if fields.contains_key("default_project_id") {
        user.default_project_id = text(fields, "default_project_id")?;
    }
    extras(&mut user.extra, fields, &KNOWN)
}

fn password(fields: &Fields, key: &str) -> Result<Option<String>, Error> {
    let password = match fields.get(key) {
        None | Some(serde_json::Value::Null) => return Ok(None),
        Some(serde_json::Value::String(password)) => password,
        Some(_) => return Err(Error::Invalid(format!("{key} has to be a string."))),
    };
    if password.is_empty() || password.len() > secret::LONGEST {
        return Err(Error::Invalid(format!("{key} has to have 1 to {} bytes.", secret::LONGEST)));
    }
    Ok(Some(password.clone()))
}
