//! Moves inventories between providers together with their allocations, in one commit: adds the new
//! inventories to the old ones, moves the allocations, then removes the inventories that are no
//! longer requested.

use std::collections::BTreeSet;

use kilonova_ids::ProviderId;
use kilonova_store::Tx;
use kilonova_wire::{Refusal, time};

use super::allocations::{self, AllocationChange, Request, malformed_reshape};
use super::inventories::{self, ClassInventory};
use super::{classes, providers};
use crate::{Error, World, codes, db};

/// The requested inventories of a provider.
#[derive(Debug, Clone)]
pub struct Target {
    /// The provider.
    pub provider: ProviderId,
    /// The generation that the client expects.
    pub generation: i64,
    /// The inventories.
    pub inventories: Vec<ClassInventory>,
}

/// Performs a reshape.
///
/// # Errors
/// 400 for an unknown provider or class; 409 for an old generation, an inventory in use, or amounts
/// that do not fit.
pub fn run(
    tx: &mut Tx<'_>,
    world: &World,
    targets: &[Target],
    changes: &[AllocationChange],
) -> Result<(), Error> {
    lock(tx, targets)?;
    let mut roots = Vec::new();
    for target in targets {
        let id = target.provider;
        let row = db::providers::by_id(tx, id)?.ok_or_else(|| {
            Refusal::bad_request(format!(
                "Resource provider {id} in inventories not found: No resource provider with uuid \
                 {id} found"
            ))
            .with_code(codes::PROVIDER_NOT_FOUND)
        })?;
        providers::check_generation(
            &row,
            target.generation,
            &format!(
                "resource provider generation conflict for provider {id}: actual: {}, given: {}",
                row.generation, target.generation
            ),
        )?;
        roots.push(row.root);
        for (class, _) in &target.inventories {
            if !classes::exists(tx, class)? {
                let why = malformed_reshape(&classes::unknown(class));
                return Err(Refusal::bad_request(why).into());
            }
        }
        if !target.inventories.is_empty() {
            inventories::write(tx, id, &target.inventories, false)?;
            db::providers::bump(tx, id, time::now())?;
        }
    }
    allocations::replace(tx, world, changes, Request::Reshape)?;
    for target in targets {
        inventories::write(tx, target.provider, &target.inventories, true)?;
        db::providers::bump(tx, target.provider, time::now())?;
    }
    roots.sort();
    roots.dedup();
    for root in roots {
        world.tree_changed(tx, root)?;
    }
    Ok(())
}

/// Locks the trees, so that other writers wait. Locks them in the order of their roots, so that two
/// reshapes of the same trees do not deadlock.
fn lock(tx: &mut Tx<'_>, targets: &[Target]) -> Result<(), Error> {
    let mut roots = BTreeSet::new();
    for target in targets {
        roots.extend(db::providers::by_id(tx, target.provider)?.map(|row| row.root));
    }
    roots.into_iter().try_for_each(|root| Ok(db::providers::lock_tree(tx, root)?))
}
