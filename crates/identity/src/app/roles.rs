//! Roles: made, changed and removed.

use super::{Fields, named, only_domain, text};
use crate::db::roles::{self, Role};
use crate::{Error, Identity, new_id};

const LONGEST: usize = 255;

impl Identity {
    pub(crate) async fn role(&self, id: &str) -> Result<Role, Error> {
        let id = id.to_owned();
        self.read(move |tx| {
            roles::by_id(tx, &id)?.ok_or_else(|| Error::NotFound("role", id.clone()))
        })
        .await
    }

    pub(crate) async fn roles(&self, name: Option<String>) -> Result<Vec<Role>, Error> {
        self.read(move |tx| Ok(roles::list(tx, name.as_deref())?)).await
    }

    pub(crate) async fn create_role(&self, fields: Fields) -> Result<Role, Error> {
        let mut role = Role { id: new_id(), name: String::new(), description: None };
        apply(&mut role, &fields)?;
        self.change(move |tx| {
            roles::insert(tx, &role).map_err(Error::taken("role", &role.name))?;
            Ok(role.clone())
        })
        .await
    }

    pub(crate) async fn update_role(&self, id: &str, fields: Fields) -> Result<Role, Error> {
        let id = id.to_owned();
        self.change(move |tx| {
            let mut role =
                roles::by_id(tx, &id)?.ok_or_else(|| Error::NotFound("role", id.clone()))?;
            apply(&mut role, &fields)?;
            roles::update(tx, &role).map_err(Error::taken("role", &role.name))?;
            Ok(role)
        })
        .await
    }

    pub(crate) async fn delete_role(&self, id: &str) -> Result<(), Error> {
        let id = id.to_owned();
        self.change(move |tx| {
            if roles::delete(tx, &id)? { Ok(()) } else { Err(Error::NotFound("role", id.clone())) }
        })
        .await
    }
}

fn apply(role: &mut Role, fields: &Fields) -> Result<(), Error> {
    if fields.get("domain_id").is_some_and(|id| !id.is_null()) {
        only_domain(fields)?;
        return Err(Error::Invalid(
            "Roles of a domain are not offered; leave domain_id out.".into(),
        ));
    }
    if let Some(name) = text(fields, "name")? {
        role.name = name;
    }
    if fields.contains_key("description") {
        role.description = text(fields, "description")?;
    }
    named(&role.name, LONGEST)
}
