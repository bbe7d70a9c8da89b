//! A session: a token with its user, scope and roles as currently stored in the database.

use jiff::{SignedDuration, Timestamp};
use kilonova_store::Tx;
use kilonova_wire::{Context, time};
use uuid::Uuid;

use crate::db::assignments;
use crate::db::credentials::{self, Credential};
use crate::db::projects::{self, Project};
use crate::db::revocations;
use crate::db::roles::{self, Role};
use crate::db::trusts::{self, Trust};
use crate::db::users::{self, User};
use crate::token::{Method, Scope, Token};
use crate::{DOMAIN_ID, Error};

/// Maximum number of trusts in a delegation chain.
const CHAIN: usize = 64;

/// Treatment of tokens that have expired within `[token] allow_expired_window`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Expiry {
    Refused,
    Allowed,
}

/// The scope of a token, resolved.
#[derive(Debug, Clone)]
pub(crate) enum SessionScope {
    Unscoped,
    Project(Project),
    Domain,
    System,
}

/// A valid token and the rights that it conveys.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub token: Token,
    /// The acting user; with an impersonating trust, the trustor.
    pub user: User,
    pub scope: SessionScope,
    pub roles: Vec<Role>,
    pub credential: Option<Credential>,
    pub trust: Option<Trust>,
}

fn refuse<T>(why: &'static str) -> Result<T, Error> {
    Err(Error::Unauthorized(why))
}

/// The user, if it exists and is enabled, and a token issued at that time is still valid for it.
fn usable_user(tx: &mut Tx<'_>, id: &str, issued: Timestamp) -> Result<User, Error> {
    let Some(user) = users::by_id(tx, id)? else {
        return refuse("the user is gone");
    };
    if !user.enabled {
        return refuse("the user is disabled");
    }
    if issued < user.tokens_valid_from {
        return refuse("the token is older than the last change of the user");
    }
    Ok(user)
}

fn usable_project(tx: &mut Tx<'_>, id: &str) -> Result<Project, Error> {
    let Some(project) = projects::by_id(tx, id)? else {
        return refuse("the project is gone");
    };
    if !project.enabled {
        return refuse("the project is disabled");
    }
    Ok(project)
}

fn text(id: Uuid) -> String {
    id.simple().to_string()
}

impl Session {
    /// Resolves a token.
    pub(crate) fn resolve(tx: &mut Tx<'_>, token: &Token, now: Timestamp) -> Result<Self, Error> {
        Self::resolve_expired(tx, token, now, SignedDuration::ZERO)
    }

    /// Resolves a token that may have expired up to `window` ago. Only this function decides whether a
    /// token is valid.
    pub(crate) fn resolve_expired(
        tx: &mut Tx<'_>,
        token: &Token,
        now: Timestamp,
        window: SignedDuration,
    ) -> Result<Self, Error> {
        if token.expires <= time::before(now, window) {
            return refuse("the token has expired");
        }
        if revocations::exists(tx, &token.audit_id())? {
            return refuse("the token was revoked");
        }
        let user = usable_user(tx, &text(token.user), token.issued)?;
        if let Some(trust) = token.trust {
            return Self::by_trust(tx, token, user, &text(trust), now);
        }
        let (scope, target) = match token.scope {
            Scope::Unscoped if token.application_credential.is_some() => {
                return refuse("the application credential's token has no project");
            }
            Scope::Unscoped => {
                let (token, scope) = (token.clone(), SessionScope::Unscoped);
                let (roles, credential, trust) = (Vec::new(), None, None);
                return Ok(Self { token, user, scope, roles, credential, trust });
            }
            Scope::Project(id) => {
                let project = usable_project(tx, &text(id))?;
                let target = project.id.clone();
                (SessionScope::Project(project), target)
            }
            Scope::Domain => (SessionScope::Domain, assignments::DOMAIN.to_owned()),
            Scope::System => (SessionScope::System, assignments::SYSTEM.to_owned()),
        };
        let mut roles = roles::effective(tx, &user.id, &target)?;
        let mut credential = None;
        if let Some(id) = token.application_credential {
            let found = usable_credential(tx, &text(id), &user.id, &target, now)?;
            let narrowed = roles::of_credential(tx, &found.id)?;
            if narrowed.iter().any(|role| !roles.contains(role)) {
                return refuse("the user no longer has the application credential's roles");
            }
            roles = narrowed;
            credential = Some(found);
        }
        if roles.is_empty() {
            return refuse("the user has no role there");
        }
        Ok(Self { token: token.clone(), user, scope, roles, credential, trust: None })
    }

    /// Resolves a trust token. The first trustor of the chain must still have all of its roles.
    fn by_trust(
        tx: &mut Tx<'_>,
        token: &Token,
        trustee: User,
        id: &str,
        now: Timestamp,
    ) -> Result<Self, Error> {
        let Some(trust) = trusts::by_id(tx, id)? else {
            return refuse("the trust is gone");
        };
        if trust.trustee != trustee.id {
            return refuse("the user is not the trustee");
        }
        let trustor = usable_user(tx, &trust.trustor, token.issued)?;
        let first = first_trustor(tx, &trust, now)?;
        let Some(project) = trust.project.clone() else {
            return refuse("the trust has no project");
        };
        if token.scope.project().map(text).as_ref() != Some(&project) {
            return refuse("the token is for another project than its trust");
        }
        let project = usable_project(tx, &project)?;
        let held = roles::effective(tx, &first, &project.id)?;
        let roles = roles::effective_of_trust(tx, &trust.id)?;
        if roles.is_empty() || roles.iter().any(|role| !held.contains(role)) {
            return refuse("the trustor no longer has the roles of the trust");
        }
        let user = if trust.impersonation { trustor } else { trustee };
        Ok(Self {
            token: token.clone(),
            user,
            scope: SessionScope::Project(project),
            roles,
            credential: None,
            trust: Some(trust),
        })
    }

    /// The project that the token is scoped to.
    pub(crate) fn project(&self) -> Option<&Project> {
        match &self.scope {
            SessionScope::Project(project) => Some(project),
            SessionScope::Unscoped | SessionScope::Domain | SessionScope::System => None,
        }
    }

    /// The request context for the services.
    pub(crate) fn context(&self) -> Context {
        let project =
            |field: fn(&Project) -> &String| self.project().map(field).cloned().unwrap_or_default();
        Context {
            user_id: self.user.id.clone(),
            user_name: self.user.name.clone(),
            project_id: project(|p| &p.id),
            project_name: project(|p| &p.name),
            system: matches!(self.scope, SessionScope::System),
            domain_id: match self.scope {
                SessionScope::Domain => DOMAIN_ID.to_owned(),
                SessionScope::Unscoped | SessionScope::Project(_) | SessionScope::System => {
                    String::new()
                }
            },
            user_domain_id: DOMAIN_ID.to_owned(),
            project_domain_id: self.project().map_or("", |_| DOMAIN_ID).to_owned(),
            roles: self.roles.iter().map(|role| role.name.clone()).collect(),
            by_signature: self.token.methods.contains(&Method::Ec2),
            ..Context::default()
        }
    }
}

fn usable_credential(
    tx: &mut Tx<'_>,
    id: &str,
    user: &str,
    project: &str,
    now: Timestamp,
) -> Result<Credential, Error> {
    let Some(found) = credentials::by_id(tx, id)? else {
        return refuse("the application credential is gone");
    };
    if found.user_id != user || found.project_id != project {
        return refuse("the application credential is for another user or project");
    }
    if found.expires_at.is_some_and(|at| at <= now) {
        return refuse("the application credential has expired");
    }
    Ok(found)
}

/// The user who began a chain of trusts. Every trust of the chain must be valid.
pub(crate) fn first_trustor(
    tx: &mut Tx<'_>,
    trust: &Trust,
    now: Timestamp,
) -> Result<String, Error> {
    let mut link = trust.clone();
    for _ in 0..CHAIN {
        if link.expires_at.is_some_and(|at| at <= now) {
            return refuse("the trust has expired");
        }
        let Some(parent) = &link.parent else { return Ok(link.trustor) };
        let Some(next) = trusts::by_id(tx, parent)? else {
            return refuse("a trust in the delegation chain is gone");
        };
        usable_user(tx, &next.trustee, Timestamp::MAX)?;
        link = next;
    }
    refuse("the delegation chain is too long")
}
