//! The measured clouds, written to the database while the server is stopped: over HTTP a hundred
//! thousand hosts would take longer than the measurement.

use std::path::Path;

use kilonova_ids::ProviderId;
use kilonova_placement::db::aggregates;
use kilonova_placement::ledger::{ProviderSpec, report_host};
use kilonova_placement::{Inventory, World};
use kilonova_program::Failure;
use kilonova_store::{DatabaseUrl, Store};
use uuid::Uuid;

/// Hosts per transaction.
const BATCH: usize = 200;

/// A host: the root provider, its children and its aggregates.
pub struct Host {
    root: ProviderSpec,
    children: Vec<ProviderSpec>,
    aggregates: Vec<Uuid>,
}

/// Writes `hosts` hosts.
pub async fn fill(state: &Path, hosts: usize, make: fn(usize) -> Host) -> Result<(), Failure> {
    let failed = |e: &dyn std::fmt::Display| Failure::failed("cannot write the hosts", e);
    let url = DatabaseUrl::Sqlite(state.join("state/kilonova.db"));
    let store = Store::open(&url).await.map_err(|e| failed(&e))?;
    for first in (0..hosts).step_by(BATCH) {
        let batch: Vec<Host> = (first..hosts.min(first + BATCH)).map(make).collect();
        let world = World::new();
        let write = move |tx: &mut kilonova_store::Tx<'_>| {
            for host in &batch {
                report_host(tx, &world, &host.root, &host.children)?;
                for aggregate in &host.aggregates {
                    aggregates::add(tx, host.root.id, *aggregate)?;
                }
            }
            Ok::<(), kilonova_placement::Error>(())
        };
        store.write(write).await.map_err(|e| failed(&e))?;
    }
    Ok(())
}

/// A root with VCPU, MEMORY_MB and DISK_GB, and four pGPUs of 16 vGPUs, two of each of two kinds.
pub fn with_pgpus(number: usize) -> Host {
    let name = host(number);
    let root = spec(
        &name,
        &[("VCPU", 128, 4.0), ("MEMORY_MB", 1 << 20, 1.0), ("DISK_GB", 100_000, 1.0)],
        &["COMPUTE_NODE", "CUSTOM_PERF_HOST"],
    );
    let kinds =
        ["CUSTOM_PERF_GPU_A", "CUSTOM_PERF_GPU_A", "CUSTOM_PERF_GPU_B", "CUSTOM_PERF_GPU_B"];
    let gpu = |(at, kind)| spec(&pgpu(number, at), &[("VGPU", 16, 1.0)], &[kind]);
    let children = kinds.into_iter().enumerate().map(gpu).collect();
    let aggregates = vec![Uuid::from_u128(0xa660_0000 + (number % 10) as u128)];
    Host { root, children, aggregates }
}

/// A root with VCPU, and eight GPUs of one unit each.
pub fn with_eight_gpus(number: usize) -> Host {
    let name = host(number);
    let gpu = |at| spec(&format!("{name}_gpu{at}"), &[("PGPU", 1, 1.0)], &[]);
    let children = (0..8).map(gpu).collect();
    Host { root: spec(&name, &[("VCPU", 64, 1.0)], &[]), children, aggregates: Vec::new() }
}

/// The name of a host.
pub fn host(number: usize) -> String {
    format!("perf-host-{number:06}")
}

/// The name of a pGPU.
pub fn pgpu(number: usize, at: usize) -> String {
    format!("perf-host-{number:06}_pgpu{at}")
}

fn spec(name: &str, inventories: &[(&str, i64, f64)], traits: &[&str]) -> ProviderSpec {
    let stock = |(class, total, allocation_ratio): &(&str, i64, f64)| {
        let (total, allocation_ratio) = (*total, *allocation_ratio);
        let max_unit = i64::from(i32::MAX);
        let (reserved, min_unit, step_size, used) = (0, 1, 1, 0);
        let terms =
            Inventory { total, reserved, min_unit, max_unit, step_size, allocation_ratio, used };
        (kilonova_ids::ResourceClass::verbatim(*class), terms)
    };
    ProviderSpec {
        id: ProviderId::new_v4(),
        name: name.to_owned(),
        inventories: inventories.iter().map(stock).collect(),
        initial_ratios: Vec::new(),
        traits: traits.iter().map(|name| (*name).to_owned()).collect(),
    }
}
