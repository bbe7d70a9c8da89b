//! Rows of `provider_aggregates`. An aggregate is a UUID listed by some provider; it has no row of
//! its own. Column `sent` is the client's spelling, which responses show; searches use the UUID.

use kilonova_ids::ProviderId;
use kilonova_store::{Error, Tx, params, statements};
use uuid::Uuid;

statements! {
    /// A provider's aggregates.
    OF_PROVIDER = "SELECT aggregate FROM provider_aggregates WHERE provider_id = ?1
        ORDER BY aggregate";
    /// A provider's aggregates as clients spelt them.
    SHOWN = "SELECT COALESCE(sent, aggregate) AS shown FROM provider_aggregates
        WHERE provider_id = ?1 ORDER BY aggregate";
    /// Adds a provider to an aggregate, and records the client's spelling.
    ADD_AS = "INSERT INTO provider_aggregates (provider_id, aggregate, sent) VALUES (?1, ?2, ?3)
        ON CONFLICT DO NOTHING";
    /// Adds a provider to an aggregate.
    ADD = "INSERT INTO provider_aggregates (provider_id, aggregate) VALUES (?1, ?2)
        ON CONFLICT DO NOTHING";
    /// Removes a provider from an aggregate.
    REMOVE = "DELETE FROM provider_aggregates WHERE provider_id = ?1 AND aggregate = ?2";
    /// Removes a provider from all aggregates.
    CLEAR = "DELETE FROM provider_aggregates WHERE provider_id = ?1";
}

/// Parses an aggregate column.
pub fn parse(text: &str) -> Result<Uuid, Error> {
    text.parse().map_err(|_| Error::Shape(format!("aggregate {text:?} is not a uuid")))
}

/// A provider's aggregates as clients spelt them.
pub fn shown(tx: &mut Tx<'_>, id: ProviderId) -> Result<Vec<String>, Error> {
    tx.rows(SHOWN, params![id])?.iter().map(|row| row.string("shown")).collect()
}

/// A provider's aggregates.
pub fn of_provider(tx: &mut Tx<'_>, id: ProviderId) -> Result<Vec<Uuid>, Error> {
    tx.rows(OF_PROVIDER, params![id])?.iter().map(|row| parse(row.text("aggregate")?)).collect()
}

/// Adds a provider to an aggregate; idempotent.
pub fn add(tx: &mut Tx<'_>, id: ProviderId, aggregate: Uuid) -> Result<(), Error> {
    tx.defer(ADD, params![id, aggregate.to_string()])
}

/// Adds a provider to an aggregate, and records the client's spelling; idempotent.
pub fn add_as(tx: &mut Tx<'_>, id: ProviderId, aggregate: Uuid, sent: &str) -> Result<(), Error> {
    tx.defer(ADD_AS, params![id, aggregate.to_string(), sent])
}

/// Removes a provider from an aggregate; idempotent.
pub fn remove(tx: &mut Tx<'_>, id: ProviderId, aggregate: Uuid) -> Result<(), Error> {
    tx.defer(REMOVE, params![id, aggregate.to_string()])
}

/// Removes a provider from all aggregates.
pub fn clear(tx: &mut Tx<'_>, id: ProviderId) -> Result<(), Error> {
    tx.defer(CLEAR, params![id])
}
