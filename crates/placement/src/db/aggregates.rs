//! Rows of `provider_aggregates`. An aggregate is a uuid that some provider names; it has no row of
//! its own. `sent` is how the client spelt it, which is what clients are shown; searches go by the uuid.

use kilonova_ids::ProviderId;
use kilonova_store::{Error, Tx, params, statements};
use uuid::Uuid;

statements! {
    /// A provider's aggregates.
    OF_PROVIDER = "SELECT aggregate FROM provider_aggregates WHERE provider_id = ?1
        ORDER BY aggregate";
    /// A provider's aggregates as clients spelt them.
    SHOWN = "SELECT COALESCE(sent, aggregate) FROM provider_aggregates WHERE provider_id = ?1
        ORDER BY aggregate";
    /// Puts a provider into an aggregate, spelt as a client did.
    ADD_AS = "INSERT INTO provider_aggregates (provider_id, aggregate, sent) VALUES (?1, ?2, ?3)
        ON CONFLICT DO NOTHING";
    /// Puts a provider into an aggregate.
    ADD = "INSERT INTO provider_aggregates (provider_id, aggregate) VALUES (?1, ?2)
        ON CONFLICT DO NOTHING";
    /// Takes it out of one.
    REMOVE = "DELETE FROM provider_aggregates WHERE provider_id = ?1 AND aggregate = ?2";
    /// Takes it out of all.
    CLEAR = "DELETE FROM provider_aggregates WHERE provider_id = ?1";
}

/// Reads an aggregate column.
pub fn parse(text: &str) -> Result<Uuid, Error> {
    text.parse().map_err(|_| Error::Shape(format!("aggregate {text:?} is not a uuid")))
}

/// A provider's aggregates as clients spelt them.
pub fn shown(tx: &mut Tx<'_>, id: ProviderId) -> Result<Vec<String>, Error> {
    tx.rows(SHOWN, params![id])?.iter().map(|row| row.string(0)).collect()
}

/// A provider's aggregates.
pub fn of_provider(tx: &mut Tx<'_>, id: ProviderId) -> Result<Vec<Uuid>, Error> {
    tx.rows(OF_PROVIDER, params![id])?.iter().map(|row| parse(row.text(0)?)).collect()
}
