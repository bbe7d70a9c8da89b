//! Resource classes: standard classes are fixed; custom classes can be deleted while no inventory
//! uses them.

use jiff::Timestamp;
use kilonova_ids::ResourceClass;
use kilonova_store::Tx;
use kilonova_wire::{Refusal, time};

use crate::{Error, World, db, names};

/// The message about an unknown class.
pub fn unknown(name: &ResourceClass) -> String {
    format!("No such resource class {name}.")
}

/// True if the class exists.
///
/// # Errors
/// Store errors only.
pub fn exists(tx: &mut Tx<'_>, name: &ResourceClass) -> Result<bool, Error> {
    Ok(names::is_standard_class(name) || db::classes::created_at(tx, name)?.is_some())
}

/// True if the class exists. No other transaction can then delete it before this one ends.
///
/// # Errors
/// Store errors only.
pub fn pin(tx: &mut Tx<'_>, name: &ResourceClass) -> Result<bool, Error> {
    Ok(names::is_standard_class(name) || db::classes::pin(tx, name)?)
}

/// All classes, each with the time of its creation or last rename (`None` for a standard class).
///
/// # Errors
/// Store errors only.
pub fn list(tx: &mut Tx<'_>) -> Result<Vec<(ResourceClass, Option<Timestamp>)>, Error> {
    let standard = names::CLASSES.iter().map(|name| (ResourceClass::verbatim(*name), None));
    let custom = db::classes::custom(tx)?.into_iter().map(|(name, at)| (name, Some(at)));
    Ok(standard.chain(custom).collect())
}

/// The time at which a class was created or last renamed (`None` for a standard class).
///
/// # Errors
/// 404.
pub fn get(tx: &mut Tx<'_>, name: &ResourceClass) -> Result<Option<Timestamp>, Error> {
    if names::is_standard_class(name) {
        return Ok(None);
    }
    let at = db::classes::created_at(tx, name)?.ok_or_else(|| Refusal::not_found(unknown(name)))?;
    Ok(Some(at))
}

/// Creates a custom class.
///
/// # Errors
/// 409 if it exists.
pub fn create(tx: &mut Tx<'_>, name: &ResourceClass) -> Result<(), Error> {
    if db::classes::ensure(tx, name, time::now())? {
        return Ok(());
    }
    Err(Refusal::conflict(format!("Conflicting resource class already exists: {name}")).into())
}

/// Renames a custom class in all rows.
///
/// # Errors
/// 400 for a standard class, 404, 409 for a name that is taken.
pub fn rename(
    tx: &mut Tx<'_>,
    world: &World,
    name: &ResourceClass,
    new: &ResourceClass,
) -> Result<(), Error> {
    if get(tx, name)?.is_none() {
        return Err(
            Refusal::bad_request(format!("Cannot update standard resource class {name}")).into()
        );
    }
    if name == new {
        return Ok(());
    }
    if exists(tx, new)? {
        return Err(Refusal::conflict(format!("Resource class already exists: {new}")).into());
    }
    for root in db::classes::rename(tx, name, new, time::now())? {
        world.tree_changed(tx, root)?;
    }
    Ok(())
}

/// Deletes a custom class that is not in use.
///
/// # Errors
/// 400 for a standard class, 404, 409 while it is in use.
pub fn delete(tx: &mut Tx<'_>, name: &ResourceClass) -> Result<(), Error> {
    if get(tx, name)?.is_none() {
        return Err(Refusal::bad_request(format!(
            "Error in delete resource class: Cannot delete standard resource class {name}."
        ))
        .into());
    }
    if db::inventories::class_in_use(tx, name)? {
        return Err(Refusal::conflict(format!(
            "Error in delete resource class: Cannot delete resource class {name}. Class is in use \
             in inventory."
        ))
        .into());
    }
    Ok(db::classes::delete(tx, name)?)
}
