//! Application credentials: a user's second key, for one project and some of his roles.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kilonova_wire::time;
use serde_json::Value;

use super::session::Session;
use super::{Fields, flag, named, text};
use crate::db::credentials::{self, Credential};
use crate::{Error, Identity, new_id, secret};

const LONGEST: usize = 255;

/// A credential with its roles (id and name).
pub(crate) type WithRoles = (Credential, Vec<(String, String)>);

impl Identity {
    pub(crate) async fn credentials(
        &self,
        user: &str,
        name: Option<String>,
    ) -> Result<Vec<WithRoles>, Error> {
        let user = user.to_owned();
        self.read(move |tx| {
            credentials::list(tx, &user, name.as_deref())?
                .into_iter()
                .map(|credential| {
                    let roles = credentials::roles(tx, &credential.id)?;
                    Ok((credential, roles))
                })
                .collect()
        })
        .await
    }

    pub(crate) async fn credential(&self, user: &str, id: &str) -> Result<WithRoles, Error> {
        let (user, id) = (user.to_owned(), id.to_owned());
        self.read(move |tx| {
            let credential = credentials::by_id(tx, &id)?
                .filter(|credential| credential.user_id == user)
                .ok_or_else(|| Error::NotFound("application credential", id.clone()))?;
            let roles = credentials::roles(tx, &id)?;
            Ok((credential, roles))
        })
        .await
    }

    /// Makes one for the session's own user and project; the secret is told here and never again.
    pub(crate) async fn create_credential(
        &self,
        session: &Session,
        fields: &Fields,
    ) -> Result<(WithRoles, String), Error> {
        may_change(session)?;
        let Some(project) = &session.project else {
            return Err(Error::Invalid(
                "An application credential is for a project; use a token with a project.".into(),
            ));
        };
        if fields
            .get("access_rules")
            .is_some_and(|rules| rules.as_array().is_none_or(|r| !r.is_empty()))
        {
            return Err(Error::Invalid("Access rules are not offered here.".into()));
        }
        let roles = wanted_roles(session, fields)?;
        let name = text(fields, "name")?.unwrap_or_default();
        named(&name, LONGEST)?;
        let secret = match text(fields, "secret")? {
            Some(secret) if secret.is_empty() || secret.len() > secret::LONGEST => {
                return Err(Error::Invalid(format!(
                    "secret has to have 1 to {} bytes.",
                    secret::LONGEST
                )));
            }
            Some(secret) => secret,
            None => URL_SAFE_NO_PAD.encode(rand::random::<[u8; 64]>()),
        };
        let credential = Credential {
            id: new_id(),
            name,
            user_id: session.user.id.clone(),
            project_id: project.id.clone(),
            description: text(fields, "description")?,
            expires_at: expiry(fields)?,
            unrestricted: flag(fields, "unrestricted")?.unwrap_or(false),
        };
        let hash = self.inner.hasher.hash(secret.clone()).await?;
        let made = self
            .change(move |tx| {
                let ids: Vec<String> = roles.iter().map(|(id, _)| id.clone()).collect();
                credentials::insert(tx, &credential, &ids, &hash)
                    .map_err(Error::taken("application_credential", &credential.name))?;
                Ok((credential.clone(), roles.clone()))
            })
            .await?;
        Ok((made, secret))
    }

    pub(crate) async fn delete_credential(&self, user: &str, id: &str) -> Result<(), Error> {
        let (user, id) = (user.to_owned(), id.to_owned());
        self.change(move |tx| {
            if credentials::delete(tx, &id, &user)? {
                Ok(())
            } else {
                Err(Error::NotFound("application credential", id.clone()))
            }
        })
        .await
    }
}

/// A credential cannot make or remove credentials, unless it was made to.
pub(crate) fn may_change(session: &Session) -> Result<(), Error> {
    match &session.credential {
        Some(credential) if !credential.unrestricted => Err(Error::Forbidden(
            "manage application credentials with a restricted application credential",
        )),
        _ => Ok(()),
    }
}

/// Roles of the token, all of them when none are named; nobody gives what he does not have.
fn wanted_roles(session: &Session, fields: &Fields) -> Result<Vec<(String, String)>, Error> {
    let pair = |role: &crate::db::roles::Role| (role.id.clone(), role.name.clone());
    let Some(wanted) = fields.get("roles").filter(|roles| !roles.is_null()) else {
        return Ok(session.roles.iter().map(pair).collect());
    };
    let shape = || Error::Invalid("roles has to be a list of objects with an id or a name.".into());
    let wanted = wanted.as_array().ok_or_else(shape)?;
    if wanted.is_empty() {
        return Ok(session.roles.iter().map(pair).collect());
    }
    wanted
        .iter()
        .map(|role| {
            let field = |key: &str| role.get(key).and_then(Value::as_str);
            let (id, name) = (field("id"), field("name"));
            let asked = id.or(name).ok_or_else(shape)?;
            session
                .roles
                .iter()
                .find(|held| id.map_or(Some(held.name.as_str()) == name, |id| held.id == id))
                .map(pair)
                .ok_or_else(|| {
                    Error::Invalid(format!("You do not have the role {asked} on this project."))
                })
        })
        .collect()
}

fn expiry(fields: &Fields) -> Result<Option<i64>, Error> {
    let Some(shown) = text(fields, "expires_at")? else { return Ok(None) };
    match time::parse(&shown) {
        Some(at) if at > time::now_micros() => Ok(Some(at)),
        Some(_) => Err(Error::Invalid("expires_at lies in the past.".into())),
        None => Err(Error::Invalid("expires_at is not a time such as 2027-01-31T12:00:00.".into())),
    }
}
