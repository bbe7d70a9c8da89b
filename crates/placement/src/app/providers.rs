//! Resource providers: create, rename, re-parent, delete.

use std::collections::HashSet;

use kilonova_ids::ProviderId;
use kilonova_store::Tx;
use kilonova_wire::{Refusal, time};

use crate::db::consumers;
use crate::db::providers::{self, NewProvider, ProviderRow};
use crate::ledger::delete_provider;
use crate::{Error, World, codes};

/// One provider.
///
/// # Errors
/// 404.
pub fn get(tx: &mut Tx<'_>, id: ProviderId) -> Result<ProviderRow, Error> {
    providers::by_id(tx, id)?.ok_or(Error::NoProvider(id))
}

/// Reads a provider and locks its tree: other writers to the tree wait for this transaction.
///
/// # Errors
/// 404.
pub fn lock(tx: &mut Tx<'_>, id: ProviderId) -> Result<ProviderRow, Error> {
    let row = get(tx, id)?;
    providers::lock_tree(tx, row.root)?;
    Ok(row)
}

/// Creates a provider.
///
/// # Errors
/// 400 for an invalid parent, 409 if the UUID or name exists.
pub fn create(
    tx: &mut Tx<'_>,
    world: &World,
    id: ProviderId,
    name: &str,
    parent: Option<ProviderId>,
) -> Result<ProviderRow, Error> {
    let refused = |why: &str| {
        Error::from(Refusal::bad_request(format!(
            "Unable to create resource provider \"{name}\", {id}: Object action create failed \
             because: {why}"
        )))
    };
    let root = match parent {
        None => id,
        Some(parent) if parent == id => {
            return Err(refused(
                "parent provider UUID cannot be same as UUID. Please set parent provider UUID to \
                 None if there is no parent.",
            ));
        }
        Some(parent) => {
            providers::by_id(tx, parent)?
                .ok_or_else(|| refused("parent provider UUID does not exist."))?
                .root
        }
    };
    let new = NewProvider::new(id, name, parent, root);
    if !providers::insert(tx, new, time::now())? {
        let taken = match providers::by_id(tx, id)? {
            Some(_) => format!("uuid: {id}"),
            None => format!("name: {name}"),
        };
        return Err(conflict(&taken));
    }
    world.tree_changed(tx, root)?;
    get(tx, id)
}

fn conflict(what: &str) -> Error {
    Refusal::conflict(format!("Conflicting resource provider {what} already exists."))
        .with_code(codes::DUPLICATE_NAME)
        .into()
}

/// Renames a provider. If a parent is given, re-parents it (`Some(None)` makes it a root). Before
/// 1.37 a parent may be set once and never changed.
///
/// # Errors
/// 400 for an invalid parent, 404, 409 if the name exists.
pub fn update(
    tx: &mut Tx<'_>,
    world: &World,
    id: ProviderId,
    name: &str,
    parent: Option<Option<ProviderId>>,
    may_move: bool,
) -> Result<ProviderRow, Error> {
    let row = get(tx, id)?;
    let refused = |action: &str, why: &str| {
        Error::from(Refusal::bad_request(format!(
            "Unable to save resource provider {id}: Object action {action} failed because: {why}"
        )))
    };
    let parent = parent.unwrap_or(row.parent);
    if row.parent.is_some() && parent != row.parent && !may_move {
        let what = if parent.is_some() { "re-parenting" } else { "un-parenting" };
        return Err(refused("update", &format!("{what} a provider is not currently allowed.")));
    }
    let subtree = below(&providers::of_root(tx, row.root)?, id);
    let root = match parent {
        None => id,
        Some(parent) => {
            let above = providers::by_id(tx, parent)?
                .ok_or_else(|| refused("create", "parent provider UUID does not exist."))?;
            if subtree.iter().any(|part| part.id == parent) {
                return Err(refused(
                    "update",
                    "creating loop in the provider tree is not allowed.",
                ));
            }
            above.root
        }
    };
    if providers::by_name(tx, name)?.is_some_and(|other| other.id != id) {
        return Err(conflict(name));
    }
    let now = time::now();
    providers::lock_trees(tx, row.root, root)?;
    providers::set_name_and_position(tx, id, name, parent, root, now)?;
    if root != row.root {
        for part in subtree.iter().filter(|part| part.id != id) {
            providers::set_name_and_position(
                tx,
                part.id,
                &part.name,
                part.parent,
                root,
                part.updated_at,
            )?;
        }
        world.tree_changed(tx, row.root)?;
    }
    world.tree_changed(tx, root)?;
    get(tx, id)
}

/// The provider and its descendants.
fn below(tree: &[ProviderRow], id: ProviderId) -> Vec<ProviderRow> {
    let mut found: HashSet<ProviderId> = HashSet::from([id]);
    loop {
        let more: Vec<ProviderId> = tree
            .iter()
            .filter(|row| row.parent.is_some_and(|parent| found.contains(&parent)))
            .map(|row| row.id)
            .filter(|id| !found.contains(id))
            .collect();
        if more.is_empty() {
            return tree.iter().filter(|row| found.contains(&row.id)).cloned().collect();
        }
        found.extend(more);
    }
}

/// Deletes a provider with its inventories, traits and aggregates.
///
/// # Errors
/// 404; 409 while it has children or allocations.
pub fn delete(tx: &mut Tx<'_>, world: &World, id: ProviderId) -> Result<(), Error> {
    let row = providers::by_id(tx, id)?.ok_or_else(|| {
        Refusal::not_found(format!("No resource provider with uuid {id} found for delete"))
    })?;
    if providers::has_children(tx, id)? {
        return Err(Refusal::conflict(format!(
            "Unable to delete parent resource provider {id}: It has child resource providers."
        ))
        .with_code(codes::CANNOT_DELETE_PARENT)
        .into());
    }
    if consumers::any_on(tx, id)? {
        return Err(Refusal::conflict(format!(
            "Unable to delete resource provider {id}: Resource provider has allocations."
        ))
        .with_code(codes::PROVIDER_IN_USE)
        .into());
    }
    providers::lock_tree(tx, row.root)?;
    delete_provider(tx, id)?;
    world.tree_changed(tx, row.root)
}

/// Refuses a write whose generation is not the provider's current one.
///
/// # Errors
/// 409 with the given message.
pub fn check_generation(row: &ProviderRow, generation: i64, words: &str) -> Result<(), Error> {
    if row.generation == generation {
        return Ok(());
    }
    Err(Refusal::conflict(words).with_code(codes::CONCURRENT_UPDATE).into())
}
