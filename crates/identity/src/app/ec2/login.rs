//! Logins with signatures: a service asks for a token of the user whose secret key signed a request.
//!
//! The token is for the project of the EC2 credential, with the limits of the trust or the application credential with
//! which it was created. It does not open this service ([`Method::Ec2`]).

use jiff::{SignedDuration, Timestamp};
use kilonova_store::Tx;
use kilonova_wire::time;
use serde_json::Value;
use uuid::Uuid;

use super::signed::is_true;
use super::{KIND, SignedRequest, content};
use crate::app::Fields;
use crate::app::login::uuid;
use crate::app::secrets::id_of;
use crate::app::session::Session;
use crate::app::trusts::is_usable;
use crate::db::secrets::StoredSecret;
use crate::db::{credentials, trusts};
use crate::token::{Method, Scope, Token};
use crate::{Error, Identity};

impl Identity {
    /// Checks a signed request; returns the token and its session. As in Keystone, it does not count as a use of a trust.
    pub(crate) async fn by_signature(
        &self,
        request: &SignedRequest,
    ) -> Result<(String, Session), Error> {
        let begun = time::now();
        let stored = match self.secret(&id_of(&request.access)).await {
            Ok(stored) if stored.kind == KIND => stored,
            Ok(_) | Err(Error::NotFound(..)) => return Err(Error::NoAccessKey),
            Err(error) => return Err(error),
        };
        let (stored, blob) = self.open_secret(stored).await?;
        let content = content(&blob);
        // Everybody could sign with an empty key.
        let secret = content.get("secret").and_then(Value::as_str).filter(|key| !key.is_empty());
        let secret = secret.ok_or(Error::Unauthorized("the EC2 credential has no secret key"))?;
        request.check_signature(secret)?;
        request.check_time(begun, self.inner.signature_lifetime)?;
        let lifetime = self.inner.token_expiration;
        let session = self.read(move |tx| begin(tx, &stored, &content, begun, lifetime)).await?;
        Ok((session.token.seal(&self.inner.keys.current()), session))
    }
}

/// Creates the session.
fn begin(
    tx: &mut Tx<'_>,
    stored: &StoredSecret,
    content: &Fields,
    begun: Timestamp,
    lifetime: SignedDuration,
) -> Result<Session, Error> {
    let project = stored.project_id.as_ref();
    let project = project.ok_or(Error::Unauthorized("the EC2 credential has no project"))?;
    let mut token = Token {
        user: uuid(&stored.user_id)?,
        scope: Scope::Project(uuid(project)?),
        trust: None,
        application_credential: None,
        methods: vec![Method::Ec2],
        audit: vec![rand::random()],
        issued: begun,
        expires: time::after(begun, lifetime),
    };
    let end = if let Some(id) = limit(content, "trust_id") {
        by_trust(tx, &mut token, stored, &id)?
    } else if let Some(id) = limit(content, "app_cred_id") {
        let found = match known(&id) {
            Some(_) => credentials::by_id(tx, &id)?,
            None => None,
        };
        let found = found.ok_or_else(gone("application credential", &id))?;
        token.application_credential = Some(uuid(&found.id)?);
        found.expires_at
    } else if let Some(id) = limit(content, "access_token_id") {
        // There is no OAuth here, so the limit cannot be read.
        return Err(gone("access token", &id)());
    } else {
        None
    };
    if let Some(end) = end {
        token.expires = token.expires.min(end);
    }
    Session::resolve(tx, &token, begun)
}

/// Makes the token one of a trust; returns the end of the trust. If the trust impersonates, the credential belongs to the
/// trustor although the trustee created it. Unlike in Keystone, a credential of a third user that names the trust gets no
/// token: it would be one of the trustor.
fn by_trust(
    tx: &mut Tx<'_>,
    token: &mut Token,
    stored: &StoredSecret,
    id: &str,
) -> Result<Option<Timestamp>, Error> {
    let found = match known(id) {
        Some(_) => trusts::by_id(tx, id)?,
        None => None,
    };
    let found = found.filter(|trust| is_usable(trust, token.issued));
    let trust = found.ok_or_else(gone("trust", id))?;
    let is_trustor = trust.impersonation && stored.user_id == trust.trustor;
    if !is_trustor && stored.user_id != trust.trustee {
        return Err(Error::Refused("User is not a trustee.".to_owned()));
    }
    token.user = uuid(&trust.trustee)?;
    token.trust = Some(uuid(&trust.id)?);
    Ok(trust.expires_at)
}

/// The id of a delegation in the content of a credential. Users can write anything there: a value of another type is an
/// id that nothing has, so that a limit is never lost.
fn limit(content: &Fields, key: &str) -> Option<String> {
    match content.get(key)? {
        value if !is_true(value) => None,
        Value::String(id) => Some(id.clone()),
        other => Some(other.to_string()),
    }
}

/// The id, if it can be one: a query must not contain anything else.
fn known(id: &str) -> Option<Uuid> {
    Uuid::try_parse(id).ok()
}

fn gone(kind: &'static str, id: &str) -> impl FnOnce() -> Error {
    let id = id.escape_debug().to_string();
    move || Error::NotFound(kind, id)
}
