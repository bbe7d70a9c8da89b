//! Login: turns a proof of identity into a token.
//!
//! Checks that need no password hash come first, so no hash is computed for a missing, disabled or
//! locked user. All failures look the same to the client and take about the same time.

use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};
use kilonova_store::Tx;
use kilonova_wire::time;
use uuid::Uuid;

use crate::app::session::{Expiry, Session, SessionScope};
use crate::db::{credentials, projects, revocations, trusts, users};
use crate::hashing::Party;
use crate::token::{Method, Scope, Token};
use crate::{Error, Identity};

/// A reference to a user or project.
#[derive(Debug, Clone)]
pub(crate) enum Named {
    Id(String),
    /// A name in the only domain.
    Name(String),
    /// A name in an unknown domain.
    UnknownDomain,
}

/// The proof of identity. No `Debug`, because it contains secrets.
pub(crate) enum Proof {
    Password { user: Named, password: String },
    Token(String),
    CredentialById { id: String, secret: String },
    CredentialByName { user: Named, name: String, secret: String },
}

/// The scope that a login requests.
#[derive(Debug, Clone)]
pub(crate) enum RequestedScope {
    /// No scope is requested: the user's default project, if there is one.
    Default,
    Unscoped,
    Project(Named),
    Domain,
    System,
    /// The project of a trust.
    Trust(String),
    /// A scope in an unknown domain.
    UnknownDomain,
}

/// A user whose proof was accepted.
#[derive(Debug, Clone)]
struct Authenticated {
    user: Uuid,
    method: Method,
    credential: Option<(Uuid, Uuid, Option<Timestamp>)>,
    parent: Option<Token>,
    begun: Timestamp,
}

impl Identity {
    /// Checks the proof; returns the token and its session.
    pub(crate) async fn login(
        &self,
        proof: Proof,
        scope: RequestedScope,
        peer: IpAddr,
    ) -> Result<(String, Session), Error> {
        let begun = time::now();
        let user = match proof {
            Proof::Password { user, password } => {
                self.by_password(user, password, begun, peer).await?
            }
            Proof::Token(text) => self.by_token(&text, &scope, begun).await?,
            Proof::CredentialById { id, secret } => {
                self.by_credential(move |_| Ok(Some(id.clone())), secret, begun, peer).await?
            }
            Proof::CredentialByName { user, name, secret } => {
                let find = move |tx: &mut Tx<'_>| {
                    let Some(user) = find_user(tx, &user)? else { return Ok(None) };
                    let found = credentials::list(tx, &user.id, Some(&name))?;
                    Ok(found.into_iter().next().map(|credential| credential.id))
                };
                self.by_credential(find, secret, begun, peer).await?
            }
        };
        if user.credential.is_some() && !matches!(scope, RequestedScope::Default) {
            return Err(Error::Unauthorized("an application credential cannot choose a scope"));
        }
        let lifetime = self.inner.token_expiration;
        let session = match scope {
            // Uses of a trust may be limited; this login counts as one.
            RequestedScope::Trust(_) => {
                self.store
                    .write(move |tx| {
                        let session = begin(tx, &user, &scope, lifetime)?;
                        consume(tx, &session)?;
                        Ok::<_, Error>(session)
                    })
                    .await?
            }
            RequestedScope::Default
            | RequestedScope::Unscoped
            | RequestedScope::Project(_)
            | RequestedScope::Domain
            | RequestedScope::System
            | RequestedScope::UnknownDomain => {
                self.read(move |tx| begin(tx, &user, &scope, lifetime)).await?
            }
        };
        Ok((session.token.seal(&self.inner.keys.current()), session))
    }

    async fn by_password(
        &self,
        user: Named,
        password: String,
        begun: Timestamp,
        peer: IpAddr,
    ) -> Result<Authenticated, Error> {
        let found = self.read(move |tx| find_user(tx, &user)).await?;
        let Some(user) = found else {
            self.inner.hasher.refuse().await?;
            return Err(Error::Unauthorized("no such user"));
        };
        let id = uuid(&user.id)?;
        self.check_password(user, password, peer).await?;
        Ok(Authenticated {
            user: id,
            method: Method::Password,
            credential: None,
            parent: None,
            begun,
        })
    }

    /// Verifies the user's password and returns its hash. Failures count towards the lockout.
    pub(crate) async fn check_password(
        &self,
        user: users::User,
        password: String,
        peer: IpAddr,
    ) -> Result<String, Error> {
        let id = user.id.clone();
        let lockout = self.lockout_of(&user);
        let (stored, failures, locked) = self
            .read(move |tx| {
                let (failures, locked) = match lockout {
                    Some(lockout) => lockout.state(tx, &id)?,
                    None => (0, false),
                };
                Ok((users::password_hash(tx, &id)?, failures, locked))
            })
            .await?;
        let why = match &stored {
            None => Some("the user has no password"),
            _ if !user.enabled => Some("the user is disabled"),
            _ if locked => Some("the account is locked after too many failures"),
            _ => None,
        };
        if locked {
            self.inner.hasher.count_locked();
            tracing::warn!(user = user.id, %peer, "login refused: the account is locked");
        }
        let (Some(stored), None) = (stored, why) else {
            self.inner.hasher.refuse().await?;
            return Err(Error::Unauthorized(why.unwrap_or("the user cannot log in")));
        };
        let party = Party { address: peer, user: user.id.clone() };
        let fits = self.inner.hasher.verify(party, password, stored.clone()).await?;
        let Some(lockout) = lockout else {
            return if fits {
                Ok(stored)
            } else {
                Err(Error::Unauthorized("the password is wrong"))
            };
        };
        if !fits {
            self.store.write(move |tx| lockout.record_failure(tx, &user.id)).await?;
            return Err(Error::Unauthorized("the password is wrong"));
        }
        // Concurrent attempts may have locked the account meanwhile.
        let id = user.id.clone();
        if self.read(move |tx| lockout.state(tx, &id)).await?.1 {
            self.inner.hasher.count_locked();
            return Err(Error::Unauthorized("the account is locked after too many failures"));
        }
        if failures > 0 {
            self.store.write(move |tx| lockout.clear(tx, &user.id)).await?;
        }
        Ok(stored)
    }

    /// Refuses the exchanges that `token_authenticate` of `keystone/auth/plugins/token.py` refuses: a token of a trust creates none, a
    /// token of the system none for a project or domain that the request names, and a token of an application credential only another one
    /// of the same credential.
    async fn by_token(
        &self,
        text: &str,
        scope: &RequestedScope,
        begun: Timestamp,
    ) -> Result<Authenticated, Error> {
        let session = self.session(text, Expiry::Refused).await?;
        if session.trust.is_some() {
            return Err(Error::Forbidden(
                "Using trust-scoped token to create another token. Create a new trust-scoped token instead",
            ));
        }
        let is_below = matches!(scope, RequestedScope::Project(_) | RequestedScope::Domain);
        if is_below && matches!(session.scope, SessionScope::System) {
            return Err(Error::Forbidden(
                "Using a system-scoped token to create a project-scoped or domain-scoped token is not allowed.",
            ));
        }
        let credential = match &session.credential {
            None => None,
            Some(_) if !matches!(scope, RequestedScope::Default) => {
                return Err(Error::Forbidden(
                    "Using an application credential token to create a scoped token is not allowed.",
                ));
            }
            Some(found) => Some((uuid(&found.id)?, uuid(&found.project_id)?, found.expires_at)),
        };
        Ok(Authenticated {
            user: session.token.user,
            method: Method::Token,
            credential,
            parent: Some(session.token),
            begun,
        })
    }

    async fn by_credential<F>(
        &self,
        mut find: F,
        secret: String,
        begun: Timestamp,
        peer: IpAddr,
    ) -> Result<Authenticated, Error>
    where
        F: FnMut(&mut Tx<'_>) -> Result<Option<String>, Error> + Send + 'static,
    {
        const WRONG: Error =
            Error::Unauthorized("the application credential or its secret is wrong");
        let found = self
            .read(move |tx| {
                let Some(id) = find(tx)? else { return Ok(None) };
                let Some(credential) = credentials::by_id(tx, &id)? else { return Ok(None) };
                if credential.expires_at.is_some_and(|at| at <= begun) {
                    return Ok(None);
                }
                let hash = credentials::secret_hash(tx, &id)?;
                Ok(hash.map(|hash| (credential, hash)))
            })
            .await?;
        let Some((credential, hash)) = found else {
            self.inner.hasher.refuse().await?;
            return Err(WRONG);
        };
        let party = Party { address: peer, user: credential.user_id.clone() };
        if !self.inner.hasher.verify(party, secret, hash).await? {
            return Err(WRONG);
        }
        Ok(Authenticated {
            user: uuid(&credential.user_id)?,
            method: Method::ApplicationCredential,
            credential: Some((
                uuid(&credential.id)?,
                uuid(&credential.project_id)?,
                credential.expires_at,
            )),
            parent: None,
            begun,
        })
    }

    /// Revokes a token.
    pub(crate) async fn revoke(&self, token: &Token) -> Result<(), Error> {
        let (audit, expires) = (token.audit_id(), token.expires);
        let useless = time::before(time::now(), self.inner.allow_expired_window);
        self.change(move |tx| Ok(revocations::insert(tx, &audit, expires, useless)?)).await
    }
}

/// Creates the session. The token's issue time precedes the check of the proof, so that a concurrent
/// password change invalidates the token.
fn begin(
    tx: &mut Tx<'_>,
    user: &Authenticated,
    scope: &RequestedScope,
    lifetime: SignedDuration,
) -> Result<Session, Error> {
    let own = rand::random::<[u8; 16]>();
    let (mut methods, mut audit, mut expires) =
        (vec![user.method], vec![own], time::after(user.begun, lifetime));
    if let Some(parent) = &user.parent {
        methods.extend(&parent.methods);
        methods.sort_unstable();
        methods.dedup();
        audit.extend(parent.audit.last());
        expires = parent.expires;
    }
    if let Some((_, _, Some(end))) = user.credential {
        expires = expires.min(end);
    }
    let mut token = Token {
        user: user.user,
        scope: Scope::Unscoped,
        trust: None,
        application_credential: user.credential.map(|(id, ..)| id),
        methods,
        audit,
        issued: user.begun,
        expires,
    };
    token.scope = match (user.credential, scope) {
        (Some((_, project, _)), _) => Scope::Project(project),
        (None, RequestedScope::Unscoped) => Scope::Unscoped,
        (None, RequestedScope::Default) => return by_default(tx, token, user.begun),
        (None, RequestedScope::Project(named)) => Scope::Project(find_project(tx, named)?),
        (None, RequestedScope::Domain) => Scope::Domain,
        (None, RequestedScope::System) => Scope::System,
        (None, RequestedScope::Trust(id)) => {
            let found = trusts::by_id(tx, id)?.filter(|trust| trust.remaining_uses != Some(0));
            let trust = found.ok_or(Error::Unauthorized("no such trust"))?;
            if trust.trustee != user.user.simple().to_string() {
                return Err(Error::Refused("User is not a trustee.".into()));
            }
            token.trust = Some(uuid(&trust.id)?);
            if let Some(end) = trust.expires_at {
                token.expires = token.expires.min(end);
            }
            match &trust.project {
                Some(project) => Scope::Project(uuid(project)?),
                None => return Err(Error::Unauthorized("the trust has no project")),
            }
        }
        (None, RequestedScope::UnknownDomain) => {
            return Err(Error::Unauthorized("no such domain"));
        }
    };
    Session::resolve(tx, &token, user.begun)
}

/// Uses up one of a trust's remaining uses.
fn consume(tx: &mut Tx<'_>, session: &Session) -> Result<(), Error> {
    match &session.trust {
        Some(trust) if trust.remaining_uses.is_some() && !trusts::consume(tx, &trust.id)? => {
            Err(Error::Refused(format!("No remaining uses for trust: {}.", trust.id)))
        }
        _ => Ok(()),
    }
}

/// Creates a session for the default project if the user can use it, otherwise an unscoped one.
fn by_default(tx: &mut Tx<'_>, token: Token, now: Timestamp) -> Result<Session, Error> {
    let user = users::by_id(tx, &token.user.simple().to_string())?;
    let project = user.and_then(|user| user.default_project_id).and_then(|id| uuid(&id).ok());
    if let Some(project) = project {
        let scoped = Token { scope: Scope::Project(project), ..token.clone() };
        match Session::resolve(tx, &scoped, now) {
            Err(Error::Unauthorized(_)) => {}
            answer => return answer,
        }
    }
    Session::resolve(tx, &token, now)
}

fn find_user(tx: &mut Tx<'_>, named: &Named) -> Result<Option<users::User>, Error> {
    Ok(match named {
        Named::Id(id) => users::by_id(tx, id)?,
        Named::Name(name) => users::by_name(tx, name)?,
        Named::UnknownDomain => None,
    })
}

fn find_project(tx: &mut Tx<'_>, named: &Named) -> Result<Uuid, Error> {
    let found = match named {
        Named::Id(id) => projects::by_id(tx, id)?,
        Named::Name(name) => projects::by_name(tx, name)?,
        Named::UnknownDomain => None,
    };
    uuid(&found.ok_or(Error::Unauthorized("no such project"))?.id)
}

/// An id of the database.
pub(super) fn uuid(text: &str) -> Result<Uuid, Error> {
    Uuid::try_parse(text)
        .map_err(|e| Error::Store(kilonova_store::Error::Shape(format!("{text}: {e}"))))
}
