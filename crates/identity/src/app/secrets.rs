//! Credentials that users store for other services, as in `keystone/api/credentials.py`. The database stores
//! only their encrypted content. The id of an EC2 credential is the SHA-256 of its access key.

use kilonova_store::Tx;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::session::Session;
use super::{Fields, extras, text};
use crate::app::ec2::KIND;
use crate::db::secrets::{self, StoredSecret};
use crate::db::{projects, users};
use crate::{Error, Identity, new_id};

/// Maximum number of credentials of a user.
const MOST: i64 = 1000;
/// Maximum number of bytes in the content, that of MySQL's type `TEXT`.
const LONGEST: usize = 65_535;
/// Maximum number of bytes in the other attributes, as JSON.
const LONGEST_EXTRA: usize = 4096;
/// Maximum number of characters in a type.
const LONGEST_TYPE: usize = 255;
const KNOWN: [&str; 6] = ["id", "user_id", "project_id", "type", "blob", "links"];
/// Number of characters of an EC2 credential's id. Other ids are shorter.
const EC2_ID: usize = 64;
/// Attributes of an EC2 credential's content that never change: they bind it to a delegation.
const FIXED: [&str; 4] = ["trust_id", "app_cred_id", "access_token_id", "access_id"];

/// A credential with its decrypted content.
pub(crate) type WithBlob = (StoredSecret, String);

/// The attributes of a request.
pub(crate) struct SecretRequest {
    pub user_id: Option<String>,
    kind: Option<String>,
    blob: Option<String>,
    /// `Some(None)` for null.
    project_id: Option<Option<String>>,
    extra: Fields,
}

impl SecretRequest {
    pub(crate) fn read(fields: &Fields) -> Result<Self, Error> {
        let given = |key: &str| match (text(fields, key)?, fields.get(key)) {
            (None, Some(_)) => Err(Error::Invalid(format!("{key} must be a string."))),
            (given, _) => Ok(given),
        };
        let (kind, blob) = (given("type")?, given("blob")?);
        if kind.as_ref().is_some_and(|kind| kind.chars().count() > LONGEST_TYPE) {
            return Err(Error::Invalid(format!(
                "type may have at most {LONGEST_TYPE} characters."
            )));
        }
        if blob.as_ref().is_some_and(|blob| blob.len() > LONGEST) {
            return Err(Error::Invalid(format!("blob may have at most {LONGEST} bytes.")));
        }
        let project_id =
            fields.get("project_id").map(|_| text(fields, "project_id")).transpose()?;
        let extra = fields.iter().filter(|(key, _)| !KNOWN.contains(&key.as_str()));
        let extra = extra.map(|(key, value)| (key.clone(), value.clone())).collect();
        Ok(Self { user_id: given("user_id")?, kind, blob, project_id, extra })
    }

    /// [`SecretRequest::read`] for a new credential.
    pub(crate) fn read_new(fields: &Fields) -> Result<Self, Error> {
        let request = Self::read(fields)?;
        let ec2_without_project =
            request.kind.as_deref().is_some_and(is_ec2) && request.project().is_none();
        let missing = [
            ("blob", request.blob.is_none()),
            ("type", request.kind.is_none()),
            ("user_id", request.user_id.is_none()),
            ("project_id", ec2_without_project),
        ];
        match missing.into_iter().find(|(_, missing)| *missing) {
            Some((key, _)) => Err(Error::Missing(key, "credential")),
            None => Ok(request),
        }
    }

    /// A request for an EC2 credential.
    pub(crate) fn of_pair(user: &str, project: String, blob: String) -> Self {
        Self {
            user_id: Some(user.to_owned()),
            kind: Some(KIND.to_owned()),
            blob: Some(blob),
            project_id: Some(Some(project)),
            extra: Fields::new(),
        }
    }

    fn project(&self) -> Option<&str> {
        self.project_id.as_ref().and_then(Option::as_deref)
    }
}

impl Identity {
    pub(crate) async fn secret(&self, id: &str) -> Result<StoredSecret, Error> {
        let id = id.to_owned();
        self.read(move |tx| secrets::by_id(tx, &id)?.ok_or_else(missing(&id))).await
    }

    /// The credentials of a user, or of all users.
    pub(crate) async fn secrets(&self, user: Option<String>) -> Result<Vec<StoredSecret>, Error> {
        self.read(move |tx| Ok(secrets::list(tx, user.as_deref())?)).await
    }

    /// Decrypts the content of credentials.
    pub(crate) async fn open_secrets(
        &self,
        stored: Vec<StoredSecret>,
    ) -> Result<Vec<WithBlob>, Error> {
        if stored.is_empty() {
            return Ok(Vec::new());
        }
        let key = self.inner.keys.of_blobs().await?;
        let open = |secret: StoredSecret| {
            let blob = key.decrypt(&secret.encrypted_blob).ok();
            let blob = blob.and_then(|blob| String::from_utf8(blob).ok()).ok_or_else(|| {
                Error::Keys(format!("the content of the credential {} is damaged", secret.id))
            })?;
            Ok((secret, blob))
        };
        stored.into_iter().map(open).collect()
    }

    /// [`Identity::open_secrets`] for one credential.
    pub(crate) async fn open_secret(&self, stored: StoredSecret) -> Result<WithBlob, Error> {
        let id = stored.id.clone();
        self.open_secrets(vec![stored]).await?.pop().ok_or_else(missing(&id))
    }

    /// Stores a credential. The content of an EC2 credential names the delegation that created it.
    pub(crate) async fn create_secret(
        &self,
        session: &Session,
        request: SecretRequest,
    ) -> Result<WithBlob, Error> {
        let SecretRequest { user_id, kind, blob, project_id, extra } = request;
        let (user_id, kind) = (user_id.unwrap_or_default(), kind.unwrap_or_default());
        let (mut blob, project_id) = (blob.unwrap_or_default(), project_id.flatten());
        if is_ec2(&kind) && is_restricted(session) {
            return Err(Error::Forbidden(
                "Using method 'application_credential' is not allowed for managing additional credentials.",
            ));
        }
        check_project(session, project_id.as_deref())?;
        let mut id = new_id();
        if is_ec2(&kind) {
            let (access, mut content) = ec2(&blob)?;
            id = id_of(&access);
            let trust = session.trust.as_ref().map(|trust| ("trust_id", &trust.id));
            let credential = session.credential.as_ref().map(|one| ("app_cred_id", &one.id));
            for (key, value) in trust.into_iter().chain(credential) {
                content.insert(key.to_owned(), value.clone().into());
                blob = Value::Object(content.clone()).to_string();
            }
        }
        let encrypted_blob = self.inner.keys.of_blobs().await?.encrypt(blob.as_bytes());
        let mut secret =
            StoredSecret { id, user_id, project_id, kind, encrypted_blob, extra: Fields::new() };
        merge(&mut secret.extra, &extra)?;
        let stored = self
            .change(move |tx| {
                check_references(tx, &secret)?;
                check_limit(tx, &secret.user_id)?;
                secrets::insert(tx, &secret).map_err(|error| match error {
                    kilonova_store::Error::Unique(_) => {
                        Error::DuplicateId("credential", secret.id.clone())
                    }
                    other => Error::Store(other),
                })?;
                Ok(secret.clone())
            })
            .await?;
        Ok((stored, blob))
    }

    /// Changes a credential.
    pub(crate) async fn update_secret(
        &self,
        current: StoredSecret,
        request: SecretRequest,
    ) -> Result<WithBlob, Error> {
        let id = current.id.clone();
        let (current, old) = self.open_secret(current).await?;
        let bound: Fields = serde_json::from_str(&old).unwrap_or_default();
        // A credential that was an EC2 credential is still bound: it can become one again.
        let is_bound = is_ec2(&current.kind) || current.id.len() == EC2_ID;
        if let Some(blob) = request.blob.as_ref().filter(|_| is_bound) {
            let (_, new) = ec2(blob)?;
            if let Some(key) = FIXED.into_iter().find(|key| bound.get(*key) != new.get(*key)) {
                return Err(Error::Invalid(format!("{key} can not be updated for credential")));
            }
        }
        let key = self.inner.keys.of_blobs().await?;
        let encrypted = request.blob.as_ref().map(|blob| key.encrypt(blob.as_bytes()));
        let blob = request.blob.clone().unwrap_or(old);
        let stored = self
            .change(move |tx| {
                let mut secret = secrets::by_id(tx, &id)?.ok_or_else(missing(&id))?;
                let becomes_ec2 = request.kind.as_deref().is_some_and(is_ec2);
                if becomes_ec2 && request.project().or(secret.project_id.as_deref()).is_none() {
                    return Err(Error::Missing("project_id", "credential"));
                }
                if let Some(kind) = &request.kind {
                    secret.kind.clone_from(kind);
                }
                let other_user = request.user_id.as_ref().filter(|id| **id != secret.user_id);
                if let Some(user_id) = other_user {
                    secret.user_id.clone_from(user_id);
                }
                if let Some(project_id) = &request.project_id {
                    secret.project_id.clone_from(project_id);
                }
                if let Some(encrypted) = &encrypted {
                    secret.encrypted_blob.clone_from(encrypted);
                }
                merge(&mut secret.extra, &request.extra)?;
                check_references(tx, &secret)?;
                if other_user.is_some() {
                    check_limit(tx, &secret.user_id)?;
                }
                secrets::update(tx, &secret)?;
                Ok(secret)
            })
            .await?;
        Ok((stored, blob))
    }

    pub(crate) async fn delete_secret(&self, id: &str) -> Result<(), Error> {
        let id = id.to_owned();
        self.change(move |tx| Error::unless_found(secrets::delete(tx, &id)?, "credential", &id))
            .await
    }
}

/// Refuses a delegated token (of a trust or an application credential) for a credential of another project than the
/// token's, or of none, as `_check_credential_project_scope` does: a stolen one must not reach the user's other
/// secrets.
pub(crate) fn check_project(session: &Session, project: Option<&str>) -> Result<(), Error> {
    match is_out_of_reach(session, project) {
        true => Err(Error::Forbidden(
            "Credential project does not match the project scope of the delegated token",
        )),
        false => Ok(()),
    }
}

/// True if [`check_project`] refuses a credential of this project.
pub(super) fn is_out_of_reach(session: &Session, project: Option<&str>) -> bool {
    let is_delegated = session.trust.is_some() || session.credential.is_some();
    let own = session.project().map(|project| project.id.as_str());
    is_delegated && own != project
}

/// True for a token of a restricted application credential.
pub(super) fn is_restricted(session: &Session) -> bool {
    session.credential.as_ref().is_some_and(|one| !one.unrestricted)
}

/// The id of the EC2 credential with an access key.
pub(crate) fn id_of(access: &str) -> String {
    Sha256::digest(access.as_bytes()).iter().map(|b| format!("{b:02x}")).collect()
}

fn missing(id: &str) -> impl FnOnce() -> Error {
    Error::not_found("credential", id)
}

fn is_ec2(kind: &str) -> bool {
    kind.eq_ignore_ascii_case(KIND)
}

/// The access key in the content of an EC2 credential, and the content, as in `_validate_blob_json`.
fn ec2(blob: &str) -> Result<(String, Fields), Error> {
    let content: Value = serde_json::from_str(blob)
        .map_err(|_| Error::Invalid("Invalid blob in credential".to_owned()))?;
    let content = match content {
        Value::Object(content) if !content.is_empty() => content,
        _ => return Err(Error::Missing("blob", "credential")),
    };
    match content.get("access").and_then(Value::as_str) {
        Some(access) => Ok((access.to_owned(), content)),
        None => Err(Error::Missing("access", "credential")),
    }
}

/// [`extras`] within [`LONGEST_EXTRA`]. A credential that predates this bound can still be changed, but not grow.
fn merge(extra: &mut Fields, fields: &Fields) -> Result<(), Error> {
    let before = crate::db::text(extra).len();
    extras(extra, fields, &KNOWN)?;
    let after = crate::db::text(extra).len();
    if after > LONGEST_EXTRA && after > before {
        return Err(Error::Invalid(format!(
            "The additional attributes of a credential may have at most {LONGEST_EXTRA} bytes."
        )));
    }
    Ok(())
}

/// Refuses a further credential of a user who has the maximum number.
fn check_limit(tx: &mut Tx<'_>, user: &str) -> Result<(), Error> {
    users::touch(tx, user)?;
    if secrets::count(tx, user)? >= MOST {
        return Err(Error::Refused(format!(
            "Unable to create additional credentials, maximum of {MOST} already exceeded for user."
        )));
    }
    Ok(())
}

/// The user and the project must exist; the credential is deleted with either.
fn check_references(tx: &mut Tx<'_>, secret: &StoredSecret) -> Result<(), Error> {
    if users::by_id(tx, &secret.user_id)?.is_none() {
        return Err(Error::NotFound("user", secret.user_id.escape_debug().to_string()));
    }
    match &secret.project_id {
        Some(project) if projects::by_id(tx, project)?.is_none() => {
            Err(Error::NotFound("project", project.escape_debug().to_string()))
        }
        _ => Ok(()),
    }
}
