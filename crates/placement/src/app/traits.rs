//! Traits: the known names, and the traits of each provider.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use kilonova_ids::ProviderId;
use kilonova_store::Tx;
use kilonova_wire::{Refusal, time};

use super::providers;
use crate::db::providers::ProviderRow;
use crate::{Error, World, codes, db, names};

/// The filters of the list of traits.
#[derive(Debug, Clone, Default)]
pub struct TraitFilter {
    /// Only these names.
    pub among: Option<Vec<String>>,
    /// Only names with this prefix.
    pub prefix: Option<String>,
    /// Only traits that some provider has (`true`), or that none has (`false`).
    pub associated: Option<bool>,
}

/// Sorts standard names before custom ones.
pub fn sort(names: &mut [String]) {
    names.sort_by(|a, b| {
        (!names::is_standard_trait(a), a.as_str()).cmp(&(!names::is_standard_trait(b), b.as_str()))
    });
}

/// The names that pass a filter.
///
/// # Errors
/// Store errors only.
pub fn list(tx: &mut Tx<'_>, filter: &TraitFilter) -> Result<Vec<String>, Error> {
    let custom = db::traits::custom(tx)?.into_iter().map(|(name, _)| name);
    let mut all: Vec<String> =
        names::TRAITS.iter().map(|name| (*name).to_owned()).chain(custom).collect();
    if let Some(among) = &filter.among {
        all.retain(|name| among.contains(name));
    }
    if let Some(prefix) = &filter.prefix {
        all.retain(|name| name.starts_with(prefix.as_str()));
    }
    if let Some(wanted) = filter.associated {
        let had: HashSet<String> = db::traits::associated(tx)?.into_iter().collect();
        all.retain(|name| had.contains(name) == wanted);
    }
    Ok(all)
}

/// The creation time of a trait (`None` for a standard trait).
///
/// # Errors
/// 404.
pub fn get(tx: &mut Tx<'_>, name: &str) -> Result<Option<Timestamp>, Error> {
    if names::is_standard_trait(name) {
        return Ok(None);
    }
    let at = db::traits::created_at(tx, name)?
        .ok_or_else(|| Refusal::not_found(format!("No such trait(s): {name}.")))?;
    Ok(Some(at))
}

/// Creates a custom trait; returns false if it exists.
///
/// # Errors
/// Store errors only.
pub fn create(tx: &mut Tx<'_>, name: &str) -> Result<bool, Error> {
    Ok(db::traits::ensure(tx, name, time::now())?)
}

/// Deletes a custom trait that no provider has.
///
/// # Errors
/// 400 for a standard trait, 404, 409 while some provider has it.
pub fn delete(tx: &mut Tx<'_>, name: &str) -> Result<(), Error> {
    if get(tx, name)?.is_none() {
        return Err(Refusal::bad_request(format!("Cannot delete standard trait {name}.")).into());
    }
    if db::traits::delete(tx, name)? {
        return Ok(());
    }
    Err(Refusal::conflict(format!("The trait {name} is in use by a resource provider.")).into())
}

/// The unknown ones among these names.
///
/// # Errors
/// Store errors only.
pub fn unknown<'a>(
    tx: &mut Tx<'_>,
    names: impl Iterator<Item = &'a str>,
) -> Result<Vec<String>, Error> {
    let mut missing = Vec::new();
    for name in names {
        if !names::is_standard_trait(name) && db::traits::created_at(tx, name)?.is_none() {
            missing.push(name.to_owned());
        }
    }
    missing.sort();
    missing.dedup();
    Ok(missing)
}

/// A provider and its traits.
///
/// # Errors
/// 404.
pub fn of_provider(tx: &mut Tx<'_>, id: ProviderId) -> Result<(ProviderRow, Vec<String>), Error> {
    let row = providers::get(tx, id)?;
    let mut have: Vec<String> =
        db::traits::of_provider(tx, id)?.into_iter().map(|(name, _)| name).collect();
    sort(&mut have);
    Ok((row, have))
}

/// Replaces a provider's traits. The generation changes only if the traits do.
///
/// # Errors
/// 400 for an unknown trait, 404, 409 for an old generation.
pub fn set(
    tx: &mut Tx<'_>,
    world: &World,
    id: ProviderId,
    generation: Option<i64>,
    wanted: &[String],
) -> Result<(ProviderRow, Vec<String>), Error> {
    let row = providers::lock(tx, id)?;
    if let Some(generation) = generation {
        providers::check_generation(
            &row,
            generation,
            "Resource provider's generation already changed. Please update the generation and try \
             again.",
        )?;
    }
    let missing = unknown(tx, wanted.iter().map(String::as_str))?;
    if !missing.is_empty() {
        return Err(Refusal::bad_request(format!("No such trait {}", missing.join(", "))).into());
    }
    let mut old: HashMap<String, bool> = db::traits::of_provider(tx, id)?.into_iter().collect();
    let mut changed = false;
    let wanted: HashSet<&String> = wanted.iter().collect();
    for name in wanted {
        if old.remove(name).is_none() {
            db::traits::add(tx, id, name, false).map_err(|error| gone(error, name))?;
            changed = true;
        }
    }
    for name in old.keys() {
        db::traits::remove(tx, id, name)?;
        changed = true;
    }
    if changed {
        db::providers::bump(tx, id, time::now())?;
        world.tree_changed(tx, row.root)?;
    }
    of_provider(tx, id)
}

/// A trait deleted concurrently is reported as a conflict, so that the client rereads.
fn gone(error: kilonova_store::Error, name: &str) -> Error {
    match error {
        kilonova_store::Error::Reference(_) => {
            Refusal::conflict(format!("The trait {name} was just removed."))
                .with_code(codes::CONCURRENT_UPDATE)
                .into()
        }
        error => error.into(),
    }
}
