//! The aggregates of a provider.

use kilonova_ids::ProviderId;
use kilonova_store::Tx;
use kilonova_wire::time;
use uuid::Uuid;

use super::providers;
use crate::db::providers::ProviderRow;
use crate::{Error, World, db};

/// An aggregate's UUID, and the client's spelling of it: with or without dashes, in either case.
pub type Spelt = (Uuid, String);

/// A provider and its aggregates as the client spelt them.
///
/// # Errors
/// 404.
pub fn list(tx: &mut Tx<'_>, id: ProviderId) -> Result<(ProviderRow, Vec<String>), Error> {
    Ok((providers::get(tx, id)?, db::aggregates::shown(tx, id)?))
}

/// Replaces the aggregates of a provider. The generation changes only if the client sends one (from
/// 1.19).
///
/// # Errors
/// 404, and 409 for an old generation.
pub fn set(
    tx: &mut Tx<'_>,
    world: &World,
    id: ProviderId,
    generation: Option<i64>,
    wanted: &[Spelt],
) -> Result<ProviderRow, Error> {
    let row = providers::lock(tx, id)?;
    if let Some(generation) = generation {
        providers::check_generation(
            &row,
            generation,
            "Resource provider's generation already changed. Please update the generation and try \
             again.",
        )?;
        db::providers::bump(tx, id, time::now())?;
    } else {
        db::providers::touch(tx, id)?;
    }
    db::aggregates::clear(tx, id)?;
    for (aggregate, sent) in wanted {
        db::aggregates::add_as(tx, id, *aggregate, sent)?;
    }
    world.tree_changed(tx, row.root)?;
    providers::get(tx, id)
}
