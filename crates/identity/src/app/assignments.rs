//! Giving roles to users and groups, on projects, the domain and the system, and taking them away.

use std::collections::HashMap;

use kilonova_store::Tx;

use crate::db::assignments::{self, Actor, Assignment, Target, Wanted};
use crate::db::roles::{self, Role};
use crate::db::{groups, projects, users};
use crate::{Error, Identity};

/// One role of one user or group somewhere.
#[derive(Debug, Clone)]
pub(crate) struct Grant {
    pub actor: Actor,
    pub target: Target,
    pub role: String,
}

/// An assignment, and the role that it implies where it is listed for that one.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub assignment: Assignment,
    /// The role that was given, if it is another one.
    pub prior: Option<String>,
}

fn ends(tx: &mut Tx<'_>, actor: &Actor, target: &Target) -> Result<(), Error> {
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
        ends(tx, &self.actor, &self.target)?;
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

    pub(crate) async fn take_back(&self, grant: Grant) -> Result<(), Error> {
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

    /// The roles that were given, without those that they imply.
    pub(crate) async fn granted(&self, actor: Actor, target: Target) -> Result<Vec<Role>, Error> {
        self.read(move |tx| {
            ends(tx, &actor, &target)?;
            let mut found = Vec::new();
            for id in assignments::roles(tx, &actor, &target)? {
                found.extend(roles::by_id(tx, &id)?);
            }
            found.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(found)
        })
        .await
    }

    /// Whether a user has a role on a target, by himself or by a group.
    pub(crate) async fn has_roles_on(&self, user: &str, target: Target) -> Result<bool, Error> {
        let user = user.to_owned();
        self.read(move |tx| Ok(!roles::effective(tx, &user, target.column())?.is_empty())).await
    }

    /// The assignments as they were made.
    pub(crate) async fn assignments(&self, wanted: Wanted) -> Result<Vec<Held>, Error> {
        self.read(move |tx| {
            let found = assignments::list(tx, &wanted)?;
            Ok(found.into_iter().map(|assignment| Held { assignment, prior: None }).collect())
        })
        .await
    }

    /// What users have of them: those of groups for each member, with the roles that they imply.
    pub(crate) async fn effective_assignments(&self, wanted: Wanted) -> Result<Vec<Held>, Error> {
        self.read(move |tx| {
            let given = assignments::of_users(tx, &Wanted { role: None, ..wanted.clone() })?;
            let mut implied: HashMap<String, Vec<Role>> = HashMap::new();
            let mut all: Vec<Held> = Vec::new();
            for assignment in given {
                let prior = assignment.role_id.clone();
                if !implied.contains_key(&prior) {
                    implied.insert(prior.clone(), roles::with_implied(tx, &prior)?);
                }
                for role in implied.get(&prior).into_iter().flatten() {
                    if wanted.role.as_ref().is_some_and(|wanted| *wanted != role.id) {
                        continue;
                    }
                    let prior = (prior != role.id).then(|| prior.clone());
                    let assignment = Assignment {
                        role_id: role.id.clone(),
                        role_name: role.name.clone(),
                        ..assignment.clone()
                    };
                    all.push(Held { assignment, prior });
                }
            }
            Ok(distinct(all))
        })
        .await
    }
}

/// One entry for each user, target and role, the most direct one. Sorted by user, target and role.
fn distinct(mut all: Vec<Held>) -> Vec<Held> {
    all.sort_by_cached_key(|held| {
        let one = &held.assignment;
        let indirect = usize::from(held.prior.is_some()) + usize::from(one.group.is_some());
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
