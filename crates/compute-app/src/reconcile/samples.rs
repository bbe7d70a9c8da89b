//! Samples how much of each resource class is in use in the whole cloud.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use kilonova_compute_db::samples::{self, Usage};
use kilonova_engine::Snapshot;
use kilonova_wire::time;

use crate::capacity::on_thread;
use crate::{Compute, Error};

/// Takes a sample from memory and writes it, if the current time slot has none yet.
pub async fn run(compute: Compute) -> Result<(), Error> {
    let now = time::now();
    if !compute.store.read(move |tx| Ok::<_, Error>(samples::is_due(tx, now)?)).await? {
        return Ok(());
    }
    compute.catch_up().await;
    let world = compute.world.snapshot();
    let sample = on_thread(move || of_world(&world)).await?;
    if sample.is_empty() {
        return Ok(());
    }
    compute.store.write(move |tx| Ok::<_, Error>(samples::add(tx, now, &sample)?)).await
}

/// The usage of each class, the classes with the most providers first. Its cost grows with the number of inventories.
fn of_world(world: &Snapshot) -> Vec<Usage> {
    let mut sums: BTreeMap<&str, (usize, i64, i64)> = BTreeMap::new();
    for node in world.roots().filter_map(|root| world.tree(root)).flat_map(|tree| tree.nodes()) {
        for (class, inventory) in node.inventories() {
            let (providers, used, capacity) = sums.entry(class.as_str()).or_default();
            *providers += 1;
            *used = used.saturating_add(inventory.used);
            *capacity = capacity.saturating_add(inventory.capacity().max(0));
        }
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(class, (providers, ..))| (Reverse(*providers), *class));
    let usage = |(class, (_, used, capacity)): (&str, _)| Usage {
        resource_class: class.to_owned(),
        used,
        capacity,
    };
    sums.into_iter().map(usage).collect()
}
