//! Granting and revoking roles of users and groups on projects, the domain and the system.

use std::collections::HashMap;

use kilonova_store::Tx;

use crate::db::assignments::{self, Actor, Assignment, AssignmentFilter, Target};
use crate::db::roles::{self, Role};
use crate::db::{groups, projects, users};
use crate::{Error, Identity};

/// One role of one actor on one target.
#[derive(Debug, Clone)]
pub(crate) struct Grant {
    pub actor: Actor,
    pub target: Target,
    pub role: String,
}

/// An assignment as listed.
#[derive(Debug, Clone)]
pub(crate) struct ListedAssignment {
    pub assignment: Assignment,
    /// The granted role that implies the role of `assignment`; `None` if that role itself is granted.
    pub prior: Option<String>,
}

fn check_ends(tx: &mut Tx<'_>, actor: &Actor, target: &Target) -> Result<(), Error> {
    if let Target::Project(id) = target
        && projects::by_id(tx, id)?.is_none()
    {
        return Err(Error::NotFound("project", id.clone()));
    }
    match actor {
        Actor::User(id) if users::by_id(tx, id)?.is_none() => {
            Err(Error::NotFound("user", id.clone()))
        }
        Actor::Group(id) if groups::by_id(tx, id)?.is_none() => {
            Err(Error::NotFound("group", id.clone()))
        }
        Actor::User(_) | Actor::Group(_) => Ok(()),
    }
}

impl Grant {
    fn check(&self, tx: &mut Tx<'_>) -> Result<(), Error> {
        check_ends(tx, &self.actor, &self.target)?;
        match roles::by_id(tx, &self.role)? {
            Some(_) => Ok(()),
            None => Err(Error::NotFound("role", self.role.clone())),
        }
    }

    fn missing(&self) -> Error {
        let (Actor::User(actor) | Actor::Group(actor)) = &self.actor;
        Error::NotFound(
            "role assignment with role",
            format!(
                "{}, user or group: {actor}, project, domain, or system: {}",
                self.role,
                self.target.column()
            ),
        )
    }
}

impl Identity {
    pub(crate) async fn grant(&self, grant: Grant) -> Result<(), Error> {
        self.change(move |tx| {
            grant.check(tx)?;
            Ok(assignments::insert(tx, &grant.actor, &grant.target, &grant.role)?)
        })
        .await
    }

    pub(crate) async fn revoke_grant(&self, grant: Grant) -> Result<(), Error> {
        self.change(move |tx| {
            grant.check(tx)?;
            match assignments::delete(tx, &grant.actor, &grant.target, &grant.role)? {
                true => Ok(()),
                false => Err(grant.missing()),
            }
        })
        .await
    }

    pub(crate) async fn check_grant(&self, grant: Grant) -> Result<(), Error> {
        self.read(move |tx| {
            grant.check(tx)?;
            match assignments::roles(tx, &grant.actor, &grant.target)?.contains(&grant.role) {
                true => Ok(()),
                false => Err(grant.missing()),
            }
        })
        .await
    }

    /// The granted roles, without implied ones.
    pub(crate) async fn granted(&self, actor: Actor, target: Target) -> Result<Vec<Role>, Error> {
        self.read(move |tx| {
            check_ends(tx, &actor, &target)?;
            let mut found = Vec::new();
            for id in assignments::roles(tx, &actor, &target)? {
                found.extend(roles::by_id(tx, &id)?);
            }
            found.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(found)
        })
        .await
    }

    /// True if a user has a role on a target, directly or through a group.
    pub(crate) async fn has_roles_on(&self, user: &str, target: Target) -> Result<bool, Error> {
        let user = user.to_owned();
        self.read(move |tx| Ok(!roles::effective(tx, &user, target.column())?.is_empty())).await
    }

    /// The assignments as granted.
    pub(crate) async fn assignments(
        &self,
        filter: AssignmentFilter,
    ) -> Result<Vec<ListedAssignment>, Error> {
        self.read(move |tx| {
            let found = assignments::list(tx, &filter)?;
            let listed = |assignment| ListedAssignment { assignment, prior: None };
            Ok(found.into_iter().map(listed).collect())
        })
        .await
    }

    /// The effective assignments of users: expands groups to their members and adds implied roles.
    pub(crate) async fn effective_assignments(
        &self,
        filter: AssignmentFilter,
    ) -> Result<Vec<ListedAssignment>, Error> {
        self.read(move |tx| {
            let any_role = AssignmentFilter { role: None, ..filter.clone() };
            let granted = assignments::of_users(tx, &any_role)?;
            let mut implied: HashMap<String, Vec<Role>> = HashMap::new();
            let mut all: Vec<ListedAssignment> = Vec::new();
            for assignment in granted {
                let prior = assignment.role_id.clone();
                if !implied.contains_key(&prior) {
                    implied.insert(prior.clone(), roles::with_implied(tx, &prior)?);
                }
                for role in implied.get(&prior).into_iter().flatten() {
                    if filter.role.as_ref().is_some_and(|id| *id != role.id) {
                        continue;
                    }
                    let prior = (prior != role.id).then(|| prior.clone());
                    let assignment = Assignment {
                        role_id: role.id.clone(),
                        role_name: role.name.clone(),
                        ..assignment.clone()
                    };
                    all.push(ListedAssignment { assignment, prior });
                }
            }
            Ok(distinct(all))
        })
        .await
    }
}

/// Keeps the most direct entry for each user, target and role, and sorts the entries in that order.
fn distinct(mut all: Vec<ListedAssignment>) -> Vec<ListedAssignment> {
    all.sort_by_cached_key(|entry| {
        let one = &entry.assignment;
        let indirect = usize::from(entry.prior.is_some()) + usize::from(one.group.is_some());
        let (Actor::User(actor) | Actor::Group(actor)) = &one.actor;
        (
            one.actor_name.clone(),
            actor.clone(),
            one.target.column().to_owned(),
            one.role_name.clone(),
            indirect,
        )
    });
    all.dedup_by(|a, b| {
        let (a, b) = (&a.assignment, &b.assignment);
        a.actor == b.actor && a.target == b.target && a.role_id == b.role_id
    });
    all
}
