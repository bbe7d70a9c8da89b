//! Groups and their members.

use kilonova_store::Tx;

use super::{Fields, extras, named, only_domain, same_domain, stripped_name, text};
use crate::db::groups::{self, Group};
use crate::db::users::{self, User};
use crate::{Error, Identity, new_id};

/// Maximum number of characters in a group's name.
const LONGEST: usize = 64;
const KNOWN: [&str; 5] = ["id", "name", "description", "domain_id", "links"];

fn existing(tx: &mut Tx<'_>, id: &str) -> Result<Group, Error> {
    groups::by_id(tx, id)?.ok_or_else(Error::not_found("group", id))
}

fn both(tx: &mut Tx<'_>, group: &str, user: &str) -> Result<(), Error> {
    existing(tx, group)?;
    match users::by_id(tx, user)? {
        Some(_) => Ok(()),
        None => Err(Error::NotFound("user", user.to_owned())),
    }
}

impl Identity {
    pub(crate) async fn group(&self, id: &str) -> Result<Group, Error> {
        let id = id.to_owned();
        self.read(move |tx| existing(tx, &id)).await
    }

    pub(crate) async fn groups(&self, name: Option<String>) -> Result<Vec<Group>, Error> {
        self.read(move |tx| Ok(groups::list(tx, name.as_deref())?)).await
    }

    pub(crate) async fn groups_of(
        &self,
        user: &str,
        name: Option<String>,
    ) -> Result<Vec<Group>, Error> {
        let user = user.to_owned();
        self.read(move |tx| {
            if users::by_id(tx, &user)?.is_none() {
                return Err(Error::NotFound("user", user.clone()));
            }
            Ok(groups::of_user(tx, &user, name.as_deref())?)
        })
        .await
    }

    pub(crate) async fn members(
        &self,
        group: &str,
        name: Option<String>,
    ) -> Result<Vec<User>, Error> {
        let group = group.to_owned();
        self.read(move |tx| {
            existing(tx, &group)?;
            Ok(users::of_group(tx, &group, name.as_deref())?)
        })
        .await
    }

    pub(crate) async fn create_group(&self, fields: Fields) -> Result<Group, Error> {
        let mut group = Group {
            id: new_id(),
            name: String::new(),
            description: String::new(),
            extra: Fields::new(),
        };
        only_domain(&fields)?;
        apply(&mut group, &fields)?;
        self.change(move |tx| {
            groups::insert(tx, &group).map_err(Error::taken("group", &group.name))?;
            Ok(group.clone())
        })
        .await
    }

    pub(crate) async fn update_group(&self, id: &str, fields: Fields) -> Result<Group, Error> {
        let id = id.to_owned();
        self.change(move |tx| {
            let mut group = existing(tx, &id)?;
            same_domain(&fields)?;
            apply(&mut group, &fields)?;
            groups::update(tx, &group).map_err(Error::taken("group", &group.name))?;
            Ok(group)
        })
        .await
    }

    pub(crate) async fn delete_group(&self, id: &str) -> Result<(), Error> {
        let id = id.to_owned();
        self.change(move |tx| Error::unless_found(groups::delete(tx, &id)?, "group", &id)).await
    }

    pub(crate) async fn join_group(&self, group: &str, user: &str) -> Result<(), Error> {
        let (group, user) = (group.to_owned(), user.to_owned());
        self.change(move |tx| {
            both(tx, &group, &user)?;
            Ok(groups::join(tx, &user, &group)?)
        })
        .await
    }

    pub(crate) async fn leave_group(&self, group: &str, user: &str) -> Result<(), Error> {
        let (group, user) = (group.to_owned(), user.to_owned());
        self.change(move |tx| {
            both(tx, &group, &user)?;
            match groups::leave(tx, &user, &group)? {
                true => Ok(()),
                false => Err(not_in(&user, &group)),
            }
        })
        .await
    }

    pub(crate) async fn is_in_group(&self, group: &str, user: &str) -> Result<(), Error> {
        let (group, user) = (group.to_owned(), user.to_owned());
        self.read(move |tx| {
            both(tx, &group, &user)?;
            match groups::contains(tx, &user, &group)? {
                true => Ok(()),
                false => Err(not_in(&user, &group)),
            }
        })
        .await
    }
}

fn not_in(user: &str, group: &str) -> Error {
    Error::NotFound("user in group", format!("{user} in {group}"))
}

fn apply(group: &mut Group, fields: &Fields) -> Result<(), Error> {
    if let Some(name) = stripped_name(fields)? {
        group.name = name;
    }
    if fields.contains_key("description") {
        group.description = text(fields, "description")?.unwrap_or_default();
    }
    named(&group.name, LONGEST)?;
    extras(&mut group.extra, fields, &KNOWN)
}
