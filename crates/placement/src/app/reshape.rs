//! Moves inventory between providers together with what is held of it, in one commit: the new
//! inventories are added to the old, the allocations move, then what is no longer wanted goes.

use std::collections::BTreeSet;

use kilonova_ids::ProviderId;
use kilonova_store::Tx;
use kilonova_wire::Fault;
use kilonova_wire::time::now_micros;

use super::allocations::{self, Change};
use super::inventories::{self, Wanted};
use super::providers;
use crate::{Error, World, codes, db};

/// The inventories that a provider shall have in the end.
#[derive(Debug, Clone)]
pub struct Target {
    /// Which provider.
    pub provider: ProviderId,
    /// What the client believes its generation to be.
    pub generation: i64,
    /// The inventories.
    pub inventories: Vec<Wanted>,
}

/// Carries a reshape out.
///
/// # Errors
/// 400 for a provider or class that is not there, 409 for old generations, inventories in use, or
/// amounts that do not fit.
pub fn run(
    tx: &mut Tx<'_>,
    world: &World,
    targets: &[Target],
    changes: &[Change],
) -> Result<(), Error> {
    lock(tx, targets)?;
    let mut roots = Vec::new();
    for target in targets {
        let id = target.provider;
        let row = db::providers::by_id(tx, id)?.ok_or_else(|| {
            Fault::bad_request(format!(
                "Resource provider {id} in inventories not found: No resource provider with uuid \
                 {id} found"
            ))
            .with_code(codes::PROVIDER_NOT_FOUND)
        })?;
        providers::expect(
            &row,
            target.generation,
            &format!(
                "resource provider generation conflict for provider {id}: actual: {}, given: {}",
                row.generation, target.generation
            ),
        )?;
        roots.push(row.root);
        if !target.inventories.is_empty() {
            inventories::write(tx, id, &target.inventories, false)?;
            db::providers::bump(tx, id, now_micros())?;
        }
    }
    allocations::replace(tx, world, changes)?;
    for target in targets {
        inventories::write(tx, target.provider, &target.inventories, true)?;
        db::providers::bump(tx, target.provider, now_micros())?;
    }
    roots.sort();
    roots.dedup();
    for root in roots {
        world.tree_changed(tx, root)?;
    }
    Ok(())
}

/// Other writers to the trees wait; the trees in the order of their roots, as two reshapes of the
/// same trees would otherwise wait for each other.
fn lock(tx: &mut Tx<'_>, targets: &[Target]) -> Result<(), Error> {
    let mut roots = BTreeSet::new();
    for target in targets {
        roots.extend(db::providers::by_id(tx, target.provider)?.map(|row| row.root));
    }
    roots.into_iter().try_for_each(|root| Ok(db::providers::lock_tree(tx, root)?))
}
