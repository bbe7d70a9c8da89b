//! The flavors that a caller may see, and changes to flavors.

use jiff::Timestamp;
use kilonova_compute_db::flavors::{self, Flavor};
use kilonova_store::{Error as StoreError, Tx};
use kilonova_wire::{Context, Refusal};

use crate::Error;

/// Selects the public, the private, or all flavors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Publicity {
    /// Public flavors, and those to which the caller's project has access.
    Public,
    /// Private ones.
    Private,
    /// All of them.
    Any,
}

/// 404 for an unknown flavor.
pub fn not_found(id: &str) -> Error {
    Refusal::not_found(format!("Flavor {id} could not be found.")).into()
}

/// The flavor, if it exists and the caller may use it.
///
/// # Errors
/// 404 or store errors. The functions below may also return these, in addition to the errors that
/// they name.
pub fn visible(tx: &mut Tx<'_>, caller: &Context, id: &str) -> Result<Flavor, Error> {
    find(tx, caller, id)?.ok_or_else(|| not_found(id))
}

/// [`visible`] without the refusal.
pub fn find(tx: &mut Tx<'_>, caller: &Context, id: &str) -> Result<Option<Flavor>, Error> {
    let Some(flavor) = flavors::by_id(tx, id)? else { return Ok(None) };
    let seen =
        flavor.is_public || caller.is_admin() || flavors::is_granted(tx, id, &caller.project_id)?;
    Ok(seen.then_some(flavor))
}

/// Lists flavors, oldest first. For callers who are not administrators, every `publicity` means
/// [`Publicity::Public`].
pub fn list(tx: &mut Tx<'_>, caller: &Context, publicity: Publicity) -> Result<Vec<Flavor>, Error> {
    let mut all = flavors::all(tx)?;
    match publicity {
        Publicity::Any if caller.is_admin() => {}
        Publicity::Private if caller.is_admin() => all.retain(|flavor| !flavor.is_public),
        _ => {
            let granted = flavors::granted(tx, &caller.project_id)?;
            all.retain(|flavor| flavor.is_public || granted.contains(&flavor.id));
        }
    }
    Ok(all)
}

/// Creates a flavor. 409 if its id or name already exists.
pub fn create(tx: &mut Tx<'_>, flavor: &Flavor) -> Result<(), Error> {
    let id_taken =
        || Error::from(Refusal::conflict(format!("Flavor with ID {} already exists.", flavor.id)));
    let name_taken = || {
        Error::from(Refusal::conflict(format!("Flavor with name {} already exists.", flavor.name)))
    };
    if flavors::by_id(tx, &flavor.id)?.is_some() {
        return Err(id_taken());
    }
    if flavors::name_taken(tx, &flavor.name)? {
        return Err(name_taken());
    }
    flavors::insert(tx, flavor).map_err(|error| match error.into() {
        Error::Store(StoreError::Unique(key)) if key.contains("name") => name_taken(),
        Error::Store(StoreError::Unique(_)) => id_taken(),
        other => other,
    })
}

/// Applies `change` to a flavor's description or extra specs.
pub fn change(
    tx: &mut Tx<'_>,
    id: &str,
    now: Timestamp,
    change: impl FnOnce(&mut Flavor) -> Result<(), Refusal>,
) -> Result<Flavor, Error> {
    let mut flavor = flavors::by_id(tx, id)?.ok_or_else(|| not_found(id))?;
    change(&mut flavor)?;
    flavors::update(tx, &flavor, now)?;
    Ok(flavor)
}

/// Grants a project access to a flavor and returns the access list. 409 if it already has access
/// and, with `private_only`, if the flavor is public.
pub fn grant(
    tx: &mut Tx<'_>,
    id: &str,
    project_id: &str,
    private_only: bool,
    now: Timestamp,
) -> Result<Vec<String>, Error> {
    let flavor = flavors::by_id(tx, id)?.ok_or_else(|| not_found(id))?;
    if private_only && flavor.is_public {
        return Err(Refusal::conflict("Can not add access to a public flavor.").into());
    }
    let exists = || {
        Error::from(Refusal::conflict(format!(
            "Flavor access already exists for flavor {id} and project {project_id} combination."
        )))
    };
    if flavors::is_granted(tx, id, project_id)? {
        return Err(exists());
    }
    flavors::grant(tx, id, project_id, now).map_err(|error| match error.into() {
        Error::Store(StoreError::Unique(_)) => exists(),
        Error::Store(StoreError::Reference(_)) => not_found(id),
        other => other,
    })?;
    Ok(flavors::projects(tx, id)?)
}

/// Revokes a project's access to a flavor and returns the access list. 404 if the project does not
/// have access.
pub fn revoke(
    tx: &mut Tx<'_>,
    id: &str,
    project_id: &str,
    now: Timestamp,
) -> Result<Vec<String>, Error> {
    flavors::by_id(tx, id)?.ok_or_else(|| not_found(id))?;
    if !flavors::revoke(tx, id, project_id, now)? {
        let why = format!("Flavor access not found for {id} / {project_id} combination.");
        return Err(Refusal::not_found(why).into());
    }
    Ok(flavors::projects(tx, id)?)
}

/// The access list of a private flavor. 404 for a public one.
pub fn access(tx: &mut Tx<'_>, caller: &Context, id: &str) -> Result<Vec<String>, Error> {
    if visible(tx, caller, id)?.is_public {
        return Err(Refusal::not_found("Access list not available for public flavors.").into());
    }
    Ok(flavors::projects(tx, id)?)
}
