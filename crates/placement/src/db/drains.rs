//! Rows of `drains`: providers that accept no further allocations, regardless of what their host or
//! an operator reserves. A row outlives its provider, so that a device that disappears for a while
//! is still drained when it returns.

use std::collections::HashSet;

use jiff::Timestamp;
use kilonova_ids::ProviderId;
use kilonova_store::{Asked, Error, Tx, Value, params, statements};

statements! {
    /// The drained providers of a tree.
    OF_ROOT = "SELECT d.provider_id FROM drains d
        JOIN resource_providers p ON p.id = d.provider_id WHERE p.root_id = ?1";
    /// The drains of some providers.
    SOME = "SELECT provider_id FROM drains WHERE provider_id IN ({})";
    /// Drains a provider.
    SET = "INSERT INTO drains (provider_id, at) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
    /// Ends the draining of a provider.
    CLEAR = "DELETE FROM drains WHERE provider_id = ?1";
    /// Reserves the provider's reported inventories completely.
    RESERVE = "UPDATE inventories SET reserved = total, updated_at = ?2 WHERE provider_id = ?1
        AND reported_reserved IS NOT NULL AND reserved <> total";
    /// Restores the larger of the operator's and the host's `reserved`. Inventories that the host
    /// no longer offers stay fully reserved.
    RESTORE = "UPDATE inventories SET reserved = CASE WHEN operator_reserved > reported_reserved
        THEN operator_reserved ELSE reported_reserved END,
        updated_at = ?2 WHERE provider_id = ?1 AND reported_reserved IS NOT NULL
        AND reserved <> CASE WHEN operator_reserved > reported_reserved
        THEN operator_reserved ELSE reported_reserved END";
}

/// The drained providers of a tree.
pub fn of_root(tx: &mut Tx<'_>, root: ProviderId) -> Result<HashSet<ProviderId>, Error> {
    tx.rows(OF_ROOT, params![root])?.iter().map(|row| row.id("provider_id")).collect()
}

/// Announces [`of_root`].
pub fn expect_of_root(tx: &mut Tx<'_>, root: ProviderId) -> Result<(), Error> {
    tx.expect(OF_ROOT, params![root])
}

/// The drained providers among these, which need not exist.
pub fn of(tx: &mut Tx<'_>, providers: &[ProviderId]) -> Result<HashSet<ProviderId>, Error> {
    let asked = ask_of(tx, providers)?;
    found(tx, asked)
}

/// Asks for [`of`].
pub fn ask_of(tx: &mut Tx<'_>, providers: &[ProviderId]) -> Result<Vec<Asked>, Error> {
    let providers: Vec<Value> = providers.iter().map(|id| Value::from(*id)).collect();
    tx.ask_list(SOME, &providers)
}

/// The drained providers that [`ask_of`] requested.
pub fn found(tx: &mut Tx<'_>, asked: Vec<Asked>) -> Result<HashSet<ProviderId>, Error> {
    tx.answers(asked)?.iter().map(|row| row.id("provider_id")).collect()
}

/// Drains a provider, which need not exist; idempotent.
pub fn set(tx: &mut Tx<'_>, provider: ProviderId, now: Timestamp) -> Result<(), Error> {
    tx.defer(SET, params![provider, now])
}

/// Ends the draining of a provider; idempotent.
pub fn clear(tx: &mut Tx<'_>, provider: ProviderId) -> Result<(), Error> {
    tx.defer(CLEAR, params![provider])
}

/// Reserves the provider's reported inventories completely; returns whether any changed.
pub fn reserve(tx: &mut Tx<'_>, provider: ProviderId, now: Timestamp) -> Result<bool, Error> {
    Ok(tx.execute(RESERVE, params![provider, now])? > 0)
}

/// Restores `reserved` of the provider's reported inventories; returns whether any changed.
pub fn restore(tx: &mut Tx<'_>, provider: ProviderId, now: Timestamp) -> Result<bool, Error> {
    Ok(tx.execute(RESTORE, params![provider, now])? > 0)
}
