//! EC2 credentials (pairs of an access key and a secret key), and logins with signatures by them.
//!
//! A pair is a stored credential of type `ec2` ([`super::secrets`]), whatever API created it. Its id is the SHA-256 of
//! its access key. Here are `OS-EC2` of `keystone/api/users.py`, and `keystone/api/_shared/EC2_S3_Resource.py`.

mod login;
mod s3;
mod signature;
mod signed;

use serde_json::{Value, json};
pub(crate) use signed::{Form, SignedRequest};

use super::Fields;
use super::secrets::{SecretRequest, WithBlob, is_out_of_reach, is_restricted};
use super::session::Session;
use crate::db::secrets::StoredSecret;
use crate::{Error, Identity, new_id};

/// The type of a stored credential that is a pair. Upstream compares it exactly, as here.
pub(crate) const KIND: &str = "ec2";

/// A pair as `OS-EC2` shows it. No `Debug`, because it contains the secret key.
pub(crate) struct Pair {
    pub user_id: String,
    pub project_id: Option<String>,
    /// The attributes of the content, null if absent.
    pub access: Value,
    pub secret: Value,
    pub trust_id: Value,
}

impl Pair {
    pub(crate) fn of((stored, blob): WithBlob) -> Self {
        let content = content(&blob);
        let value = |key: &str| content.get(key).cloned().unwrap_or_default();
        Self {
            access: value("access"),
            secret: value("secret"),
            trust_id: value("trust_id"),
            user_id: stored.user_id,
            project_id: stored.project_id,
        }
    }
}

impl Identity {
    /// The pairs of a user that the session may see.
    pub(crate) async fn pairs(&self, session: &Session, user: &str) -> Result<Vec<Pair>, Error> {
        self.user(user).await?;
        let mut stored = self.secrets(Some(user.to_owned())).await?;
        stored.retain(|one| one.kind == KIND && check(session, one.project_id.as_deref()).is_ok());
        Ok(self.open_secrets(stored).await?.into_iter().map(Pair::of).collect())
    }

    /// Creates a pair for a user on a project. Unlike in Keystone, the pair of an application credential's token is bound
    /// to that application credential, as a pair from `/v3/credentials` is: it would otherwise grant all roles of the user.
    pub(crate) async fn create_pair(
        &self,
        session: &Session,
        user: &str,
        project: Option<String>,
    ) -> Result<Pair, Error> {
        if is_restricted(session) {
            return Err(Error::Forbidden(
                "Using method 'application_credential' is not allowed for managing additional application credentials.",
            ));
        }
        self.user(user).await?;
        let project = project.ok_or_else(Error::not_found("project", "None"))?;
        if project.chars().any(char::is_control) {
            return Err(Error::NotFound("project", project.escape_debug().to_string()));
        }
        self.project(&project).await?;
        check(session, Some(&project))?;
        let blob = json!({"access": new_id(), "secret": new_id(), "trust_id": null});
        let request = SecretRequest::of_pair(user, project, blob.to_string());
        Ok(Pair::of(self.create_secret(session, request).await?))
    }
}

/// Refuses a stored credential that is not a pair, or not within reach of the session.
pub(crate) fn check_pair(session: &Session, stored: &StoredSecret) -> Result<(), Error> {
    if stored.kind != KIND {
        return Err(Error::Unauthorized("the credential is not an EC2 credential"));
    }
    check(session, stored.project_id.as_deref())
}

fn check(session: &Session, project: Option<&str>) -> Result<(), Error> {
    match is_out_of_reach(session, project) {
        true => Err(Error::Forbidden(
            "EC2 credential project does not match the project scope of the delegated token",
        )),
        false => Ok(()),
    }
}

/// The content of a credential; empty if it is not an object.
fn content(blob: &str) -> Fields {
    serde_json::from_str(blob).unwrap_or_default()
}
