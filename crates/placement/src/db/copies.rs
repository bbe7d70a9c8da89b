//! Statements of an import: rows copied exactly from another Placement, including generations.

use jiff::Timestamp;
use kilonova_ids::{ConsumerId, ProviderId};
use kilonova_store::{Error, Tx, params, statements};

use super::consumers::ConsumerRow;

statements! {
    /// Sets the generation of a provider.
    SET_GENERATION = "UPDATE resource_providers SET generation = ?2, version = version + 1,
        updated_at = ?3 WHERE id = ?1";
    /// Inserts or replaces a consumer.
    SET_CONSUMER = "INSERT INTO consumers
        (id, generation, consumer_type, project_id, user_id, updated_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (id) DO UPDATE SET
        generation = excluded.generation, consumer_type = excluded.consumer_type,
        project_id = excluded.project_id, user_id = excluded.user_id,
        updated_at = excluded.updated_at";
    /// Marks inventories that a copy over-commits: no claim caused the over-commitment.
    MARK_SHRUNK = "UPDATE inventories SET shrunk = 1
        WHERE provider_id = ?1 AND used > total * allocation_ratio";
}

/// Sets the generation of a provider.
pub fn set_generation(
    tx: &mut Tx<'_>,
    provider: ProviderId,
    generation: i64,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(SET_GENERATION, params![provider, generation, now])
}

/// Inserts or replaces a consumer.
pub fn set_consumer(tx: &mut Tx<'_>, id: ConsumerId, row: &ConsumerRow) -> Result<(), Error> {
    let values = params![
        id,
        row.generation,
        row.consumer_type.as_deref(),
        &row.project_id,
        &row.user_id,
        row.updated_at,
    ];
    tx.defer(SET_CONSUMER, values)
}

/// Marks the provider's inventories that a copy over-committed.
pub fn mark_shrunk(tx: &mut Tx<'_>, provider: ProviderId) -> Result<(), Error> {
    tx.defer(MARK_SHRUNK, params![provider])
}
