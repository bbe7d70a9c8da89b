//! Rows of `traits` (custom traits only) and `provider_traits`. Standard traits are constants of the
//! program.
//!
//! A row of `provider_traits` references a custom trait by a foreign key, which prevents the deletion of
//! the trait while a provider has it. Unlike a write to the trait's row, the key lets a thousand hosts
//! with the same trait register concurrently.

use std::collections::{BTreeSet, HashMap};

use jiff::Timestamp;
use kilonova_ids::ProviderId;
use kilonova_store::{Error, Tx, Value, listed, params, statements};

use crate::names;

statements! {
    /// All custom traits.
    CUSTOM = "SELECT name, updated_at FROM traits ORDER BY name";
    /// One custom trait.
    GET = "SELECT updated_at FROM traits WHERE name = ?1";
    /// Creates custom traits.
    ENSURE = "INSERT INTO traits (name, updated_at) VALUES ({}, {}) ON CONFLICT (name) DO NOTHING";
    /// Deletes a custom trait.
    DELETE = "DELETE FROM traits WHERE name = ?1";
    /// A provider's traits.
    OF_PROVIDER = "SELECT trait, reported FROM provider_traits WHERE provider_id = ?1 ORDER BY trait";
    /// The traits of all providers of a tree.
    OF_ROOT = "SELECT provider_id, trait, reported FROM provider_traits WHERE provider_id IN
        (SELECT id FROM resource_providers WHERE root_id = ?1) ORDER BY provider_id, trait";
    /// Adds traits to providers.
    ADD = "INSERT INTO provider_traits (provider_id, trait, custom, reported)
        VALUES ({}, {}, {}, {})
        ON CONFLICT (provider_id, trait) DO UPDATE SET reported = excluded.reported";
    /// Removes a trait from a provider.
    REMOVE = "DELETE FROM provider_traits WHERE provider_id = ?1 AND trait = ?2";
    /// Removes all traits from a provider.
    CLEAR = "DELETE FROM provider_traits WHERE provider_id = ?1";
    /// Traits that some provider has.
    ASSOCIATED = "SELECT DISTINCT trait FROM provider_traits ORDER BY trait";
}

/// A provider's traits, and whether its host reports each.
pub fn of_provider(tx: &mut Tx<'_>, id: ProviderId) -> Result<Vec<(String, bool)>, Error> {
    tx.rows(OF_PROVIDER, params![id])?
        .iter()
        .map(|row| Ok((row.string("trait")?, row.bool("reported")?)))
        .collect()
}

/// Announces [`of_root`].
pub fn expect_of_root(tx: &mut Tx<'_>, root: ProviderId) -> Result<(), Error> {
    tx.expect(OF_ROOT, params![root])
}

/// The traits of the providers of a tree, and whether the host reports each.
pub fn of_root(
    tx: &mut Tx<'_>,
    root: ProviderId,
) -> Result<HashMap<ProviderId, HashMap<String, bool>>, Error> {
    let mut found: HashMap<ProviderId, HashMap<String, bool>> = HashMap::new();
    for row in tx.rows(OF_ROOT, params![root])? {
        let of_provider = found.entry(row.id("provider_id")?).or_default();
        of_provider.insert(row.string("trait")?, row.bool("reported")?);
    }
    Ok(found)
}

/// The custom traits and their creation times.
pub fn custom(tx: &mut Tx<'_>) -> Result<Vec<(String, Timestamp)>, Error> {
    tx.rows(CUSTOM, params![])?
        .iter()
        .map(|row| Ok((row.string("name")?, row.time("updated_at")?)))
        .collect()
}

/// The creation time of a custom trait; `None` if it does not exist.
pub fn created_at(tx: &mut Tx<'_>, name: &str) -> Result<Option<Timestamp>, Error> {
    tx.row(GET, params![name])?.map(|row| row.time("updated_at")).transpose()
}

/// Creates a custom trait; returns false if it exists.
pub fn ensure(tx: &mut Tx<'_>, name: &str, now: Timestamp) -> Result<bool, Error> {
    Ok(tx.execute(&listed(ENSURE, 1), params![name, now])? > 0)
}

/// Traits that some provider has.
pub fn associated(tx: &mut Tx<'_>) -> Result<Vec<String>, Error> {
    tx.rows(ASSOCIATED, params![])?.iter().map(|row| row.string("trait")).collect()
}

/// Adds a trait to a provider. Fails with [`Error::Reference`] if a custom trait does not exist.
pub fn add(tx: &mut Tx<'_>, id: ProviderId, name: &str, reported: bool) -> Result<(), Error> {
    let custom = (!names::is_standard_trait(name)).then_some(name);
    tx.execute(&listed(ADD, 1), params![id, name, custom, reported])?;
    Ok(())
}

/// The name, if it is that of a custom trait.
fn as_custom(name: &str) -> Option<&str> {
    (!names::is_standard_trait(name)).then_some(name)
}

/// Adds traits that the providers' hosts report, and creates missing custom ones. No pair of
/// provider and trait may occur twice.
pub fn report(
    tx: &mut Tx<'_>,
    reported: &[(ProviderId, &str)],
    now: Timestamp,
) -> Result<(), Error> {
    // Sorted, so that two hosts with the same new traits cannot deadlock.
    let new: BTreeSet<&str> = reported.iter().filter_map(|(_, name)| as_custom(name)).collect();
    let new: Vec<[Value; 2]> = new.into_iter().map(|name| [name.into(), now.into()]).collect();
    tx.defer_rows(ENSURE, &new)?;
    let row = |(id, name): &(ProviderId, &str)| -> [Value; 4] {
        [(*id).into(), (*name).into(), as_custom(name).into(), true.into()]
    };
    let rows: Vec<_> = reported.iter().map(row).collect();
    tx.defer_rows(ADD, &rows)
}

/// Removes a trait from a provider.
pub fn remove(tx: &mut Tx<'_>, id: ProviderId, name: &str) -> Result<(), Error> {
    tx.defer(REMOVE, params![id, name])
}

/// Removes all traits from a provider.
pub fn clear(tx: &mut Tx<'_>, id: ProviderId) -> Result<(), Error> {
    tx.defer(CLEAR, params![id])
}

/// Deletes a custom trait. Returns false if some provider has it; the caller must then abort the
/// transaction.
pub fn delete(tx: &mut Tx<'_>, name: &str) -> Result<bool, Error> {
    match tx.execute(DELETE, params![name]) {
        Ok(_) => Ok(true),
        Err(Error::Reference(_)) => Ok(false),
        Err(error) => Err(error),
    }
}
