//! Roles. Role names are unique regardless of case, because policies ignore case: a role `Admin`
//! would have the rights of `admin`.

use super::{Fields, extras, immutable, named, only_domain, only_unprotects, text};
use crate::db::credentials;
use crate::db::roles::{self, Role};
use crate::{Error, Identity, new_id};

const LONGEST: usize = 255;
const KNOWN: [&str; 6] = ["id", "name", "description", "domain_id", "options", "links"];

impl Identity {
    pub(crate) async fn role(&self, id: &str) -> Result<Role, Error> {
        let id = id.to_owned();
        self.read(move |tx| roles::by_id(tx, &id)?.ok_or_else(Error::not_found("role", &id))).await
    }

    pub(crate) async fn roles(&self, name: Option<String>) -> Result<Vec<Role>, Error> {
        self.read(move |tx| Ok(roles::list(tx, name.as_deref())?)).await
    }

    pub(crate) async fn create_role(&self, fields: Fields) -> Result<Role, Error> {
        let mut role = Role {
            id: new_id(),
            name: String::new(),
            description: None,
            immutable: false,
            extra: Fields::new(),
        };
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
            let mut role = roles::by_id(tx, &id)?.ok_or_else(Error::not_found("role", &id))?;
            if role.immutable && !only_unprotects(&fields) {
                return Err(Error::Immutable("update", "role", id.clone()));
            }
            apply(&mut role, &fields)?;
            roles::update(tx, &role).map_err(Error::taken("role", &role.name))?;
            Ok(role)
        })
        .await
    }

    pub(crate) async fn delete_role(&self, id: &str) -> Result<(), Error> {
        let id = id.to_owned();
        self.change(move |tx| {
            let role = roles::by_id(tx, &id)?;
            if role.is_some_and(|role| role.immutable) {
                return Err(Error::Immutable("delete", "role", id.clone()));
            }
            // A credential never grants only some of its roles, so every credential with this role is deleted.
            credentials::delete_with_role(tx, &id)?;
            Error::unless_found(roles::delete(tx, &id)?, "role", &id)
        })
        .await
    }
}

fn apply(role: &mut Role, fields: &Fields) -> Result<(), Error> {
    if fields.get("domain_id").is_some_and(|id| !id.is_null()) {
        only_domain(fields)?;
        return Err(Error::Invalid(
            "Domain-specific roles are not supported; omit domain_id.".into(),
        ));
    }
    if let Some(name) = text(fields, "name")? {
        role.name = name;
    }
    if fields.contains_key("description") {
        role.description = text(fields, "description")?;
    }
    role.immutable = immutable(role.immutable, fields, "role")?;
    named(&role.name, LONGEST)?;
    extras(&mut role.extra, fields, &KNOWN)
}
