//! Device profiles: create, find, delete.

use kilonova_ids::{DeviceProfileId, parse_uuid_like};
use kilonova_store::Tx;
use kilonova_wire::time;

use super::grammar::{Draft, is_name};
use crate::Error;
use crate::db::profiles::{self, ProfileRow};

const KIND: &str = "Device Profile";

/// Stores a new profile.
pub(crate) fn create(tx: &mut Tx<'_>, draft: &Draft) -> Result<ProfileRow, Error> {
    if profiles::by_name(tx, &draft.name)?.is_some() {
        return Err(Error::NameTaken(draft.name.clone()));
    }
    let uuid = match draft.uuid {
        None => DeviceProfileId::new_v4(),
        Some(uuid) if profiles::by_uuid(tx, uuid)?.is_some() => {
            return Err(Error::UuidTaken(uuid.to_string()));
        }
        Some(uuid) => uuid,
    };
    let row = ProfileRow {
        uuid,
        name: draft.name.clone(),
        description: draft.description.clone(),
        groups: draft.groups.clone(),
        created_at: time::now(),
        updated_at: None,
    };
    match profiles::insert(tx, &row) {
        Err(kilonova_store::Error::Unique(_)) => Err(Error::NameTaken(row.name)),
        Err(error) => Err(error.into()),
        Ok(()) => Ok(row),
    }
}

/// Finds a profile by UUID or, if the text is not a UUID, by name.
pub(crate) fn find(tx: &mut Tx<'_>, uuid_or_name: &str) -> Result<ProfileRow, Error> {
    if let Some(uuid) = parse_uuid_like::<DeviceProfileId>(uuid_or_name) {
        let found = profiles::by_uuid(tx, uuid)?;
        return found.ok_or_else(|| Error::not_found(KIND, "uuid", uuid));
    }
    by_name(tx, uuid_or_name)
}

/// Finds a profile by name.
pub(crate) fn by_name(tx: &mut Tx<'_>, name: &str) -> Result<ProfileRow, Error> {
    let found = if is_name(name) { profiles::by_name(tx, name)? } else { None };
    found.ok_or_else(|| Error::not_found(KIND, "name", super::grammar::shown(name)))
}

/// Deletes all of these profiles, or none.
pub(crate) fn delete(tx: &mut Tx<'_>, uuids_or_names: &[String]) -> Result<(), Error> {
    for given in uuids_or_names {
        let row = find(tx, given)?;
        if profiles::uses(tx, row.uuid)? > 0 {
            return Err(Error::ProfileInUse(row.name));
        }
        match profiles::delete(tx, row.uuid) {
            Err(kilonova_store::Error::Reference(_)) => return Err(Error::ProfileInUse(row.name)),
            Err(error) => return Err(error.into()),
            Ok(()) => {}
        }
    }
    Ok(())
}
