//! Bootstrap: creates the first user, projects and roles.

use std::net::{IpAddr, Ipv4Addr};

use jiff::Timestamp;
use kilonova_store::{Store, Tx};
use kilonova_wire::text::check_name;
use kilonova_wire::time;

use crate::db::assignments::{Actor, Target};
use crate::db::users::User;
use crate::db::{assignments, lockouts, projects, roles, users};
use crate::hashing::{self, Party};
use crate::{Error, Identity, new_id};

const ADMIN: &str = "admin";
const PROJECTS: [(&str, &str); 2] = [
    (ADMIN, "Bootstrap project for initializing the cloud."),
    ("service", "Users of the services."),
];
/// Each role implies the next.
const CHAIN: [&str; 4] = ["admin", "manager", "member", "reader"];
const SERVICE_ROLE: &str = "service";

/// True if the admin user exists, in which case it needs no generated password.
///
/// # Errors
/// Database errors.
pub async fn has_admin(store: &Store) -> Result<bool, Error> {
    store.read(|tx| Ok(users::by_name(tx, ADMIN)?.is_some())).await
}

impl Identity {
    /// Creates the user and project `admin`, the project `service` and the default roles where they
    /// are missing. Returns whether it created the user; an existing user keeps its password.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a password that is empty or too long.
    pub async fn bootstrap(&self, password: &str) -> Result<bool, Error> {
        check_name("password", password, hashing::LONGEST)
            .map_err(|_| Error::Invalid("the bootstrap password is empty or too long".into()))?;
        let there = self.read(|tx| Ok(users::by_name(tx, ADMIN)?.is_some())).await?;
        let party = Party { address: IpAddr::V4(Ipv4Addr::LOCALHOST), user: ADMIN.into() };
        let hash = match there {
            true => None,
            false => Some(self.inner.hasher.hash(party, password.into()).await?),
        };
        self.change(move |tx| {
            for (name, about) in PROJECTS {
                projects::insert_missing(tx, &new_id(), name, about)?;
            }
            let mut chain = Vec::new();
            for name in CHAIN {
                let new = roles::insert_missing(tx, &new_id(), name)?;
                chain.extend(roles::by_name(tx, name)?.map(|role| (role.id, new)));
            }
            roles::insert_missing(tx, &new_id(), SERVICE_ROLE)?;
            // An implication that an administrator deleted is not restored.
            for pair in chain.windows(2) {
                if let [(prior, before), (implied, after)] = pair
                    && (*before || *after)
                {
                    roles::imply(tx, prior, implied)?;
                }
            }
            let Some(hash) = &hash else { return Ok(false) };
            if users::by_name(tx, ADMIN)?.is_some() {
                return Ok(false);
            }
            let user = User {
                id: new_id(),
                name: ADMIN.into(),
                enabled: true,
                default_project_id: None,
                tokens_valid_from: Timestamp::UNIX_EPOCH,
                extra: serde_json::Map::new(),
                options: serde_json::Map::new(),
            };
            users::insert(tx, &user, Some(hash))?;
            grant(tx, user.id)?;
            Ok(true)
        })
        .await
    }

    /// Gives the user `admin` a new password, for an operator who has lost it. Like
    /// `keystone-manage bootstrap` (keystone/cmd/bootstrap.py), this creates the user if missing,
    /// enables the user, and restores its roles: the default roles on the project `admin`, and `admin`
    /// on the system. It also revokes the user's earlier tokens and ends a lockout.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a password that is empty or too long.
    pub async fn recover_admin(&self, password: &str) -> Result<(), Error> {
        if self.bootstrap(password).await? {
            tracing::warn!(user = ADMIN, "created the user on an operator's command");
            return Ok(());
        }
        let party = Party { address: IpAddr::V4(Ipv4Addr::LOCALHOST), user: ADMIN.into() };
        let hash = self.inner.hasher.hash(party, password.into()).await?;
        self.change(move |tx| {
            let user = users::by_name(tx, ADMIN)?.ok_or_else(Error::not_found("user", ADMIN))?;
            let now = time::now();
            let user = User { enabled: true, tokens_valid_from: now, ..user };
            users::update(tx, &user)?;
            users::set_password(tx, &user.id, Some(&hash), now)?;
            lockouts::clear(tx, &user.id)?;
            grant(tx, user.id)
        })
        .await?;
        tracing::warn!(user = ADMIN, "set a new password on an operator's command");
        Ok(())
    }
}

/// Grants the roles of the first administrator.
fn grant(tx: &mut Tx<'_>, user: String) -> Result<(), Error> {
    let actor = Actor::User(user);
    let mut chain = Vec::new();
    for name in CHAIN {
        chain.extend(roles::by_name(tx, name)?.map(|role| role.id));
    }
    if let Some(project) = projects::by_name(tx, ADMIN)? {
        let target = Target::Project(project.id);
        for role in &chain {
            assignments::insert(tx, &actor, &target, role)?;
        }
    }
    if let Some(role) = chain.first() {
        assignments::insert(tx, &actor, &Target::System, role)?;
    }
    Ok(())
}
