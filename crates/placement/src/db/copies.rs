//! Statements of an import: rows made exactly as another Placement has them, generations included.

use kilonova_store::statements;

statements! {
    /// What clients see of a provider.
    SET_GENERATION = "UPDATE resource_providers SET generation = ?2, version = version + 1,
        updated_at = ?3 WHERE id = ?1";
    /// A consumer, new or over the old one.
    SET_CONSUMER = "INSERT INTO consumers
        (id, generation, consumer_type, project_id, user_id, updated_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (id) DO UPDATE SET
        generation = excluded.generation, consumer_type = excluded.consumer_type,
        project_id = excluded.project_id, user_id = excluded.user_id,
        updated_at = excluded.updated_at";
    /// Over-commitment that came with the copy is not the fault of a claim.
    MARK_SHRUNK = "UPDATE inventories SET shrunk = 1
        WHERE provider_id = ?1 AND used > total * allocation_ratio";
}
