//! Application credentials: a second secret of a user, for one project and some of the user's roles.

use std::collections::HashSet;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kilonova_store::Tx;
use serde_json::Value;

use super::session::Session;
use super::{Fields, expiry, flag, named, text};
use crate::db::credentials::{self, Credential};
use crate::db::users;
use crate::hashing::{self, Party};
use crate::{Error, Identity, new_id};

const LONGEST: usize = 255;
/// Maximum number of characters in a description.
const DESCRIPTION: usize = 1024;

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
                .ok_or_else(Error::not_found("application credential", &id))?;
            let roles = credentials::roles(tx, &id)?;
            Ok((credential, roles))
        })
        .await
    }

    /// Creates a credential for the session's user and project. The secret is returned only here.
    pub(crate) async fn create_credential(
        &self,
        session: &Session,
        fields: &Fields,
        peer: IpAddr,
    ) -> Result<(WithRoles, String), Error> {
        let Some(project) = session.project() else {
            return Err(Error::Invalid(
                "An application credential requires a project-scoped token.".into(),
            ));
        };
        if fields
            .get("access_rules")
            .is_some_and(|rules| rules.as_array().is_none_or(|r| !r.is_empty()))
        {
            return Err(Error::Invalid("Access rules are not supported.".into()));
        }
        let roles = requested_roles(session, fields)?;
        let name = text(fields, "name")?.unwrap_or_default();
        named(&name, LONGEST)?;
        let secret = match text(fields, "secret")? {
            Some(secret) if secret.is_empty() || secret.len() > hashing::LONGEST => {
                return Err(Error::Invalid(format!(
                    "secret must have 1 to {} bytes.",
                    hashing::LONGEST
                )));
            }
            Some(secret) => secret,
            None => URL_SAFE_NO_PAD.encode(rand::random::<[u8; 64]>()),
        };
        let description = text(fields, "description")?;
        if description.as_ref().is_some_and(|text| text.chars().count() > DESCRIPTION) {
            return Err(Error::Invalid(format!(
                "description may have at most {DESCRIPTION} characters."
            )));
        }
        let credential = Credential {
            id: new_id(),
            name,
            user_id: session.user.id.clone(),
            project_id: project.id.clone(),
            description,
            expires_at: expiry(fields)?,
            unrestricted: flag(fields, "unrestricted")?.unwrap_or(false),
        };
        // Checked before the costly hash, and again in the transaction that writes the row.
        let limit = self.inner.credential_limit;
        let user = session.user.id.clone();
        self.read(move |tx| check_limit(tx, &user, limit)).await?;
        let party = Party { address: peer, user: session.user.id.clone() };
        let hash = self.inner.hasher.hash(party, secret.clone()).await?;
        let made = self
            .change(move |tx| {
                if limit.is_some() {
                    users::touch(tx, &credential.user_id)?;
                }
                check_limit(tx, &credential.user_id, limit)?;
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
            Error::unless_found(credentials::delete(tx, &id, &user)?, "application credential", &id)
        })
        .await
    }
}

/// Refuses a credential beyond the user's limit.
fn check_limit(tx: &mut Tx<'_>, user: &str, limit: Option<i64>) -> Result<(), Error> {
    match limit {
        Some(limit) if credentials::count(tx, user)? >= limit => Err(Error::Refused(format!(
            "Unable to create additional application credentials, maximum of {limit} already \
             exceeded for user."
        ))),
        _ => Ok(()),
    }
}

/// Refuses to read and manage credentials with a trust, as `_block_delegated_token_app_creds` of
/// `keystone/api/users.py`: a credential outlives the trust.
pub(crate) fn refuse_trust(session: &Session) -> Result<(), Error> {
    match session.trust {
        Some(_) => Err(Error::Refused(
            "Cannot manage application credentials with a token issued via delegation.".into(),
        )),
        None => Ok(()),
    }
}

/// Refuses to manage credentials with a restricted credential.
pub(crate) fn may_change(session: &Session) -> Result<(), Error> {
    match &session.credential {
        Some(credential) if !credential.unrestricted => Err(Error::Forbidden(
            "manage application credentials with a restricted application credential",
        )),
        _ => Ok(()),
    }
}

/// The requested roles, which must be among the token's; all of them if none are requested.
fn requested_roles(session: &Session, fields: &Fields) -> Result<Vec<(String, String)>, Error> {
    let pair = |role: &crate::db::roles::Role| (role.id.clone(), role.name.clone());
    let Some(requested) = fields.get("roles").filter(|roles| !roles.is_null()) else {
        return Ok(session.roles.iter().map(pair).collect());
    };
    let shape = || Error::Invalid("roles must be a list of objects with an id or a name.".into());
    let requested = requested.as_array().ok_or_else(shape)?;
    if requested.is_empty() {
        return Ok(session.roles.iter().map(pair).collect());
    }
    super::check_roles(requested)?;
    let mut roles: Vec<(String, String)> = requested
        .iter()
        .map(|role| {
            let field = |key: &str| role.get(key).and_then(Value::as_str);
            let (id, name) = (field("id"), field("name"));
            let label = id.or(name).ok_or_else(shape)?;
            session
                .roles
                .iter()
                .find(|held| id.map_or(Some(held.name.as_str()) == name, |id| held.id == id))
                .map(pair)
                .ok_or_else(|| {
                    Error::Invalid(format!("You do not have the role {label} on this project."))
                })
        })
        .collect::<Result<_, _>>()?;
    let mut seen = HashSet::new();
    roles.retain(|(id, _)| seen.insert(id.clone()));
    Ok(roles)
}
