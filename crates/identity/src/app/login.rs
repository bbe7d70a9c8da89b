//! Logging in: a proof of who the user is becomes a token.
//!
//! What needs no hash comes first: a user who is not there, is disabled or is locked out costs
//! none. All ways to fail look the same from outside and take about as long.

use std::net::IpAddr;

use kilonova_store::Tx;
use kilonova_wire::time::now_micros;
use uuid::Uuid;

use crate::app::session::Session;
use crate::db::{credentials, projects, revocations, trusts, users};
use crate::hashing::Party;
use crate::token::{Method, Scope, Token};
use crate::{Error, Identity};

/// Which user or project is meant.
#[derive(Debug, Clone)]
pub(crate) enum Named {
    Id(String),
    /// A name in the only domain.
    Name(String),
    /// A name in a domain that is not there.
    Elsewhere,
}

/// How the user proves who he is. No `Debug`: it holds secrets.
pub(crate) enum Proof {
    Password { user: Named, password: String },
    Token(String),
    CredentialById { id: String, secret: String },
    CredentialByName { user: Named, name: String, secret: String },
}

/// What the token shall be for.
#[derive(Debug, Clone)]
pub(crate) enum Wish {
    /// Not said: the user's default project, if he has one.
    Default,
    Unscoped,
    Project(Named),
    Domain,
    System,
    /// By a trust, for its project.
    Trust(String),
    /// In a domain that is not there.
    Elsewhere,
}

/// Who was found to be asking.
#[derive(Debug, Clone)]
struct Who {
    user: Uuid,
    method: Method,
    credential: Option<(Uuid, Uuid, Option<i64>)>,
    parent: Option<Token>,
    begun: i64,
}

impl Identity {
    /// Checks the proof and gives the token's text and what it stands for.
    pub(crate) async fn login(
        &self,
        proof: Proof,
        wish: Wish,
        peer: IpAddr,
    ) -> Result<(String, Session), Error> {
        let begun = now_micros();
        let who = match proof {
            Proof::Password { user, password } => {
                self.by_password(user, password, begun, peer).await?
            }
            Proof::Token(text) => self.by_token(&text, begun).await?,
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
        if who.credential.is_some() && !matches!(wish, Wish::Default) {
            return Err(Error::Unauthorized("an application credential cannot choose a scope"));
        }
        let lifetime = self.inner.token_expiration;
        let session = match wish {
            // A trust may have so many uses: this is one.
            Wish::Trust(_) => {
                self.store
                    .write(move |tx| {
                        let session = begin(tx, &who, &wish, lifetime)?;
                        consume(tx, &session)?;
                        Ok::<_, Error>(session)
                    })
                    .await?
            }
            Wish::Default
            | Wish::Unscoped
            | Wish::Project(_)
            | Wish::Domain
            | Wish::System
            | Wish::Elsewhere => self.read(move |tx| begin(tx, &who, &wish, lifetime)).await?,
        };
        Ok((session.token.seal(&self.inner.keys), session))
    }

    async fn by_password(
        &self,
        user: Named,
        password: String,
        begun: i64,
        peer: IpAddr,
    ) -> Result<Who, Error> {
        let found = self.read(move |tx| find_user(tx, &user)).await?;
        let Some(user) = found else {
            self.inner.hasher.refuse().await?;
            return Err(Error::Unauthorized("there is no such user"));
        };
        let id = uuid(&user.id)?;
        self.check_password(user, password, peer).await?;
        Ok(Who { user: id, method: Method::Password, credential: None, parent: None, begun })
    }

    /// Fails unless it is the user's password. Failures count towards a lock of the account.
    pub(crate) async fn check_password(
        &self,
        user: users::User,
        password: String,
        peer: IpAddr,
    ) -> Result<(), Error> {
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
            tracing::warn!(user = user.id, %peer, "a login of an account that is locked");
        }
        let (Some(stored), None) = (stored, why) else {
            self.inner.hasher.refuse().await?;
            return Err(Error::Unauthorized(why.unwrap_or("the user cannot log in")));
        };
        let party = Party { address: peer, user: user.id.clone() };
        let fits = self.inner.hasher.verify(party, password, stored).await?;
        let Some(lockout) = lockout else {
            return if fits { Ok(()) } else { Err(Error::Unauthorized("the password is wrong")) };
        };
        if !fits {
            self.store.write(move |tx| lockout.failed(tx, &user.id)).await?;
            return Err(Error::Unauthorized("the password is wrong"));
        }
        // While this one waited, others may have used up the attempts.
        let id = user.id.clone();
        if self.read(move |tx| lockout.state(tx, &id)).await?.1 {
            return Err(Error::Unauthorized("the account is locked after too many failures"));
        }
        if failures > 0 {
            self.store.write(move |tx| lockout.clear(tx, &user.id)).await?;
        }
        Ok(())
    }

    async fn by_token(&self, text: &str, begun: i64) -> Result<Who, Error> {
        let session = self.session(text).await?;
        if session.credential.is_some() {
            return Err(Error::Forbidden("rescope the token of an application credential"));
        }
        if session.trust.is_some() {
            return Err(Error::Forbidden("rescope a token that was got by a trust"));
        }
        Ok(Who {
            user: session.token.user,
            method: Method::Token,
            credential: None,
            parent: Some(session.token),
            begun,
        })
    }

    async fn by_credential<F>(
        &self,
        mut find: F,
        secret: String,
        begun: i64,
        peer: IpAddr,
    ) -> Result<Who, Error>
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
        Ok(Who {
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

    /// Ends a token before its time.
    pub(crate) async fn revoke(&self, token: &Token) -> Result<(), Error> {
        let (audit, expires) = (token.audit_id(), token.expires);
        self.change(move |tx| Ok(revocations::insert(tx, &audit, expires, now_micros())?)).await
    }
}

/// The token is dated from before the proof was checked: a password changed meanwhile ends it.
fn begin(tx: &mut Tx<'_>, who: &Who, wish: &Wish, lifetime: i64) -> Result<Session, Error> {
    let own = rand::random::<[u8; 16]>();
    let (mut methods, mut audit, mut expires) =
        (vec![who.method], vec![own], who.begun.saturating_add(lifetime));
    if let Some(parent) = &who.parent {
        methods.extend(&parent.methods);
        methods.sort_unstable();
        methods.dedup();
        audit.extend(parent.audit.last());
        expires = parent.expires;
    }
    if let Some((_, _, Some(end))) = who.credential {
        expires = expires.min(end);
    }
    let mut token = Token {
        user: who.user,
        scope: Scope::Nothing,
        trust: None,
        application_credential: who.credential.map(|(id, ..)| id),
        methods,
        audit,
        issued: who.begun,
        expires,
    };
    token.scope = match (who.credential, wish) {
        (Some((_, project, _)), _) => Scope::Project(project),
        (None, Wish::Unscoped) => Scope::Nothing,
        (None, Wish::Default) => return by_default(tx, token, who.begun),
        (None, Wish::Project(named)) => Scope::Project(find_project(tx, named)?),
        (None, Wish::Domain) => Scope::Domain,
        (None, Wish::System) => Scope::System,
        (None, Wish::Trust(id)) => {
            let found = trusts::by_id(tx, id)?.filter(|trust| trust.remaining_uses != Some(0));
            let trust = found.ok_or(Error::Unauthorized("there is no such trust"))?;
            if trust.trustee != who.user.simple().to_string() {
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
        (None, Wish::Elsewhere) => {
            return Err(Error::Unauthorized("there is no such domain"));
        }
    };
    Session::resolve(tx, &token, who.begun)
}

/// One use of a trust less.
fn consume(tx: &mut Tx<'_>, session: &Session) -> Result<(), Error> {
    match &session.trust {
        Some(trust) if trust.remaining_uses.is_some() && !trusts::consume(tx, &trust.id)? => {
            Err(Error::Refused(format!("No remaining uses for trust: {}.", trust.id)))
        }
        _ => Ok(()),
    }
}

/// The default project if the user can use it, else no project.
fn by_default(tx: &mut Tx<'_>, token: Token, now: i64) -> Result<Session, Error> {
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
        Named::Elsewhere => None,
    })
}

fn find_project(tx: &mut Tx<'_>, named: &Named) -> Result<Uuid, Error> {
    let found = match named {
        Named::Id(id) => projects::by_id(tx, id)?,
        Named::Name(name) => projects::by_name(tx, name)?,
        Named::Elsewhere => None,
    };
    uuid(&found.ok_or(Error::Unauthorized("there is no such project"))?.id)
}

fn uuid(text: &str) -> Result<Uuid, Error> {
    Uuid::try_parse(text)
        .map_err(|e| Error::Store(kilonova_store::Error::Shape(format!("{text}: {e}"))))
}
