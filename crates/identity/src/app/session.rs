//! What a token stands for at this moment: its user, project and roles as the database has them.

use kilonova_store::Tx;
use kilonova_wire::Context;

use crate::db::credentials::{self, Credential};
use crate::db::projects::{self, Project};
use crate::db::revocations;
use crate::db::roles::{self, Role};
use crate::db::users::{self, User};
use crate::token::Token;
use crate::{DOMAIN_ID, Error};

/// A valid token and what it gives.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub token: Token,
    pub user: User,
    pub project: Option<Project>,
    pub roles: Vec<Role>,
    pub credential: Option<Credential>,
}

impl Session {
    /// Everything that makes a token invalid is looked at here, and only here.
    pub(crate) fn resolve(tx: &mut Tx<'_>, token: &Token, now: i64) -> Result<Self, Error> {
        let refuse = |why| Err(Error::Unauthorized(why));
        if token.expires <= now {
            return refuse("the token has expired");
        }
        if revocations::exists(tx, &token.audit_id())? {
            return refuse("the token was revoked");
        }
        let Some(user) = users::by_id(tx, &token.user.simple().to_string())? else {
            return refuse("the user is gone");
        };
        if !user.enabled {
            return refuse("the user is disabled");
        }
        if token.issued < user.tokens_valid_from {
            return refuse("the token is older than the last change of the user");
        }
        let Some(project) = token.project else {
            return match token.application_credential {
                None => Ok(Self {
                    token: token.clone(),
                    user,
                    project: None,
                    roles: Vec::new(),
                    credential: None,
                }),
                Some(_) => refuse("the application credential's token has no project"),
            };
        };
        let Some(project) = projects::by_id(tx, &project.simple().to_string())? else {
            return refuse("the project is gone");
        };
        if !project.enabled {
            return refuse("the project is disabled");
        }
        let mut roles = roles::effective(tx, &user.id, &project.id)?;
        let mut credential = None;
        if let Some(id) = token.application_credential {
            let id = id.simple().to_string();
            let Some(found) = credentials::by_id(tx, &id)? else {
                return refuse("the application credential is gone");
            };
            if found.user_id != user.id || found.project_id != project.id {
                return refuse("the application credential is for something else");
            }
            if found.expires_at.is_some_and(|at| at <= now) {
                return refuse("the application credential has expired");
            }
            let narrowed = roles::of_credential(tx, &id)?;
            if narrowed.iter().any(|role| !roles.contains(role)) {
                return refuse("the user no longer has the application credential's roles");
            }
            roles = narrowed;
            credential = Some(found);
        }
        if roles.is_empty() {
            return refuse("the user has no role on the project");
        }
        Ok(Self { token: token.clone(), user, project: Some(project), roles, credential })
    }

    /// What the services get to know.
    pub(crate) fn context(&self) -> Context {
        let project = |field: fn(&Project) -> &String| {
            self.project.as_ref().map(field).cloned().unwrap_or_default()
        };
        Context {
            user_id: self.user.id.clone(),
            user_name: self.user.name.clone(),
            project_id: project(|p| &p.id),
            project_name: project(|p| &p.name),
            system: false,
            domain_id: String::new(),
            roles: self.roles.iter().map(|role| role.name.clone()).collect(),
            user_domain_id: DOMAIN_ID.to_owned(),
            project_domain_id: self.project.as_ref().map_or("", |_| DOMAIN_ID).to_owned(),
            ..Context::default()
        }
    }
}
