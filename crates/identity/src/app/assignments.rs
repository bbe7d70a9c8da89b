//! Giving roles to users on projects, and taking them away.

use kilonova_store::Tx;

use crate::db::assignments::{self, Assignment};
use crate::db::roles::{self, Role};
use crate::db::{projects, users};
use crate::{Error, Identity};

/// One role of one user on one project.
#[derive(Debug, Clone)]
pub(crate) struct Grant {
    pub project: String,
    pub user: String,
    pub role: String,
}

impl Grant {
    fn check(&self, tx: &mut Tx<'_>) -> Result<(), Error> {
        ends(tx, &self.project, &self.user)?;
        if roles::by_id(tx, &self.role)?.is_none() {
            return Err(Error::NotFound("role", self.role.clone()));
        }
        Ok(())
    }
}

fn ends(tx: &mut Tx<'_>, project: &str, user: &str) -> Result<(), Error> {
    if projects::by_id(tx, project)?.is_none() {
        return Err(Error::NotFound("project", project.to_owned()));
    }
    if users::by_id(tx, user)?.is_none() {
        return Err(Error::NotFound("user", user.to_owned()));
    }
    Ok(())
}

fn missing(grant: &Grant) -> Error {
    Error::NotFound(
        "role assignment with role",
        format!("{}, user {}, project {}", grant.role, grant.user, grant.project),
    )
}

impl Identity {
    pub(crate) async fn grant(&self, grant: Grant) -> Result<(), Error> {
        self.change(move |tx| {
            grant.check(tx)?;
            Ok(assignments::insert(tx, &grant.user, &grant.project, &grant.role)?)
        })
        .await
    }

    pub(crate) async fn take_back(&self, grant: Grant) -> Result<(), Error> {
        self.change(move |tx| {
            grant.check(tx)?;
            if assignments::delete(tx, &grant.user, &grant.project, &grant.role)? {
                Ok(())
            } else {
                Err(missing(&grant))
            }
        })
        .await
    }

    pub(crate) async fn check_grant(&self, grant: Grant) -> Result<(), Error> {
        self.read(move |tx| {
            grant.check(tx)?;
            if assignments::exists(tx, &grant.user, &grant.project, &grant.role)? {
                Ok(())
            } else {
                Err(missing(&grant))
            }
        })
        .await
    }

    /// The roles that were given, without those that they imply.
    pub(crate) async fn granted(&self, project: &str, user: &str) -> Result<Vec<Role>, Error> {
        let (project, user) = (project.to_owned(), user.to_owned());
        self.read(move |tx| {
            ends(tx, &project, &user)?;
            let mut roles = Vec::new();
            for assignment in assignments::list(tx, Some(&user), Some(&project), None)? {
                roles.extend(roles::by_id(tx, &assignment.role_id)?);
            }
            Ok(roles)
        })
        .await
    }

    /// All assignments between the named ends; with `effective`, implied roles too.
    pub(crate) async fn assignments(
        &self,
        user: Option<String>,
        project: Option<String>,
        role: Option<String>,
        effective: bool,
    ) -> Result<Vec<Assignment>, Error> {
        self.read(move |tx| {
            let (user, project, role) = (user.as_deref(), project.as_deref(), role.as_deref());
            if !effective {
                return Ok(assignments::list(tx, user, project, role)?);
            }
            let mut pairs = assignments::list(tx, user, project, None)?;
            pairs.dedup_by(|a, b| a.user_id == b.user_id && a.project_id == b.project_id);
            let mut all = Vec::new();
            for pair in pairs {
                for held in roles::effective(tx, &pair.user_id, &pair.project_id)? {
                    if role.is_none_or(|role| role == held.id) {
                        all.push(Assignment {
                            role_id: held.id,
                            role_name: held.name,
                            ..pair.clone()
                        });
                    }
                }
            }
            Ok(all)
        })
        .await
    }
}
