//! Rows of `drains`: providers from which nothing more is given out, whatever their host or an
//! operator says is reserved. A row outlives its provider, so that a device that is away for a
//! while comes back drained.

use std::collections::HashSet;

use kilonova_ids::ProviderId;
use kilonova_store::{Error, Tx, params, statements};

statements! {
    /// The drained providers of a tree.
    OF_ROOT = "SELECT d.provider_id FROM drains d
        JOIN resource_providers p ON p.id = d.provider_id WHERE p.root_id = ?1";
    /// Whether a provider is drained.
    ONE = "SELECT provider_id FROM drains WHERE provider_id = ?1";
    /// From now on.
    SET = "INSERT INTO drains (provider_id, at) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
    /// No longer.
    CLEAR = "DELETE FROM drains WHERE provider_id = ?1";
    /// Reserves all of what the host offers.
    RESERVE = "UPDATE inventories SET reserved = total, updated_at = ?2 WHERE provider_id = ?1
        AND reported_reserved IS NOT NULL AND reserved <> total";
    /// Back to the larger of what the operator and the host say. What the host no longer has stays as
    /// it is.
    RESTORE = "UPDATE inventories SET reserved = CASE WHEN operator_reserved > reported_reserved
        THEN operator_reserved ELSE reported_reserved END,
        updated_at = ?2 WHERE provider_id = ?1 AND reported_reserved IS NOT NULL
        AND reserved <> CASE WHEN operator_reserved > reported_reserved
        THEN operator_reserved ELSE reported_reserved END";
}

/// The drained providers of a tree.
pub fn of_root(tx: &mut Tx<'_>, root: ProviderId) -> Result<HashSet<ProviderId>, Error> {
    tx.rows(OF_ROOT, params![root])?.iter().map(|row| row.id(0)).collect()
}

/// Whether a provider, there or not, is drained.
pub fn one(tx: &mut Tx<'_>, provider: ProviderId) -> Result<bool, Error> {
    Ok(tx.row(ONE, params![provider])?.is_some())
}
