//! Logging in: a proof of who the user is becomes a token.
//!
//! All ways to fail look the same from outside and take the time of one hash.

use kilonova_store::Tx;
use kilonova_wire::time::now_micros;
use uuid::Uuid;

use crate::app::session::Session;
use crate::db::{credentials, projects, revocations, users};
use crate::token::{Method, Token};
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
pub(crate) enum Scope {
    /// Not said: the user's default project, if he has one.
    Default,
    Unscoped,
    Project(Named),
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
        scope: Scope,
    ) -> Result<(String, Session), Error> {
        let begun = now_micros();
        let who = match proof {
            Proof::Password { user, password } => self.by_password(user, password, begun).await?,
            Proof::Token(text) => self.by_token(&text, begun).await?,
            Proof::CredentialById { id, secret } => {
                self.by_credential(move |_| Ok(Some(id.clone())), secret, begun).await?
            }
            Proof::CredentialByName { user, name, secret } => {
                let find = move |tx: &mut Tx<'_>| {
                    let Some(user) = find_user(tx, &user)? else { return Ok(None) };
                    let found = credentials::list(tx, &user.id, Some(&name))?;
                    Ok(found.into_iter().next().map(|credential| credential.id))
                };
                self.by_credential(find, secret, begun).await?
            }
        };
        if who.credential.is_some() && !matches!(scope, Scope::Default) {
            return Err(Error::Unauthorized("an application credential cannot choose a scope"));
        }
        let lifetime = self.inner.token_expiration;
        let session = self.read(move |tx| begin(tx, &who, &scope, lifetime)).await?;
        Ok((session.token.seal(&self.inner.keys), session))
    }

    async fn by_password(&self, user: Named, password: String, begun: i64) -> Result<Who, Error> {
        let found = self
            .read(move |tx| {
                let Some(user) = find_user(tx, &user)? else { return Ok(None) };
                let hash = users::password_hash(tx, &user.id)?;
                Ok(Some((user.id, hash)))
            })
            .await?;
        let hash = found.as_ref().and_then(|(_, hash)| hash.clone());
        let fits = self.inner.hasher.verify(password, hash).await?;
        match found {
            Some((id, _)) if fits => Ok(Who {
                user: uuid(&id)?,
                method: Method::Password,
                credential: None,
                parent: None,
                begun,
            }),
            Some(_) => Err(Error::Unauthorized("the password is wrong")),
            None => Err(Error::Unauthorized("there is no such user")),
        }
    }

    async fn by_token(&self, text: &str, begun: i64) -> Result<Who, Error> {
        let session = self.session(text).await?;
        if session.credential.is_some() {
            return Err(Error::Forbidden("rescope the token of an application credential"));
        }
        Ok(Who {
            user: session.token.user,
            method: Method::Token,
            credential: None,
            parent: Some(session.token),
            begun,
        })
    }

    async fn by_credential<F>(&self, mut find: F, secret: String, begun: i64) -> Result<Who, Error>
    where
        F: FnMut(&mut Tx<'_>) -> Result<Option<String>, Error> + Send + 'static,
    {
        let found = self
            .read(move |tx| {
                let Some(id) = find(tx)? else { return Ok(None) };
                let Some(credential) = credentials::by_id(tx, &id)? else { return Ok(None) };
                let hash = credentials::secret_hash(tx, &id)?;
                Ok(Some((credential, hash)))
            })
            .await?;
        let hash = found.as_ref().and_then(|(_, hash)| hash.clone());
        let fits = self.inner.hasher.verify(secret, hash).await?;
        match found {
            Some((credential, _)) if fits => Ok(Who {
                user: uuid(&credential.user_id)?,
                method: Method::ApplicationCredential,
                credential: Some((
                    uuid(&credential.id)?,
                    uuid(&credential.project_id)?,
                    credential.expires_at,
                )),
                parent: None,
                begun,
            }),
            _ => Err(Error::Unauthorized("the application credential or its secret is wrong")),
        }
    }

    /// Ends a token before its time.
    pub(crate) async fn revoke(&self, token: &Token) -> Result<(), Error> {
        let (audit, expires) = (token.audit_id(), token.expires);
        self.change(move |tx| Ok(revocations::insert(tx, &audit, expires, now_micros())?)).await
    }
}

/// The token is dated from before the proof was checked: a password changed meanwhile ends it.
fn begin(tx: &mut Tx<'_>, who: &Who, scope: &Scope, lifetime: i64) -> Result<Session, Error> {
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
        project: None,
        application_credential: who.credential.map(|(id, ..)| id),
        methods,
        audit,
        issued: who.begun,
        expires,
    };
    token.project = match (who.credential, scope) {
        (Some((_, project, _)), _) => Some(project),
        (None, Scope::Unscoped) => None,
        (None, Scope::Default) => return by_default(tx, token, who.begun),
        (None, Scope::Project(named)) => Some(find_project(tx, named)?),
    };
    Session::resolve(tx, &token, who.begun)
}

/// The default project if the user can use it, else no project.
fn by_default(tx: &mut Tx<'_>, token: Token, now: i64) -> Result<Session, Error> {
    let user = users::by_id(tx, &token.user.simple().to_string())?;
    let project = user.and_then(|user| user.default_project_id).and_then(|id| uuid(&id).ok());
    if project.is_some() {
        match Session::resolve(tx, &Token { project, ..token.clone() }, now) {
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
