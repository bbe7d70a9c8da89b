//! Statements of an import: rows copied exactly from another Placement, including generations.

use kilonova_store::statements;

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
    /// Marks the over-commitment that a copy brings: no claim caused it.
    MARK_SHRUNK = "UPDATE inventories SET shrunk = 1
        WHERE provider_id = ?1 AND used > total * allocation_ratio";
}
