//! Counts how many more servers of each flavor fit now, and how the free devices are divided, for operators.
//!
//! This module must never change anything. The counting runs on a separate thread, outside any
//! transaction.

use std::collections::{BTreeMap, HashSet};
use std::num::NonZero;
use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use kilonova_compute_db::flavors;
use kilonova_compute_db::servers::{Creator, FlavorOf, LocalDisks, SchedulerHints, Spec};
use kilonova_compute_scheduler::capacity::{
    self, Capacity, DeviceKind, DeviceUse, EqualHosts, Searches,
};
use kilonova_compute_scheduler::{Constraints, Facts, Scope};
use kilonova_engine::{Query, Snapshot};
use kilonova_node_api::ImageNumbers;
use kilonova_threads::Pool;
use kilonova_wire::{Refusal, time};

use crate::boot::{self, ProfileGroups, Profiles};
use crate::resolve::flavor_of;
use crate::{Compute, Error, ports};

/// Maximum number of searches per request, so that a request ends in a cloud of any size.
const SEARCHES: u64 = 500_000;

/// Maximum number of requests that wait for a thread.
const WAITING: usize = 16;

/// The threads that run the searches.
static THREADS: LazyLock<std::io::Result<Pool>> = LazyLock::new(|| {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    Pool::with_waiting("capacity", (cores / 2).max(1), WAITING)
});

/// The result for one flavor.
#[derive(Debug, Clone)]
pub enum Fits {
    /// The count.
    Counted(Capacity),
    /// No server of the flavor can be scheduled, for this reason.
    Unusable(String),
    /// Not counted, because the request has used up its searches.
    NotCounted,
}

/// The capacity of the cloud.
#[derive(Debug, Clone)]
pub struct CloudCapacity {
    /// The id, name and result of each flavor, in the order of the names.
    pub flavors: Vec<(String, String, Fits)>,
    /// The use of the devices, by kind.
    pub devices: BTreeMap<DeviceKind, DeviceUse>,
    /// Number of compute hosts.
    pub hosts: usize,
    /// Number of compute hosts that are up and enabled.
    pub up: usize,
}

/// Counts for one flavor, selected by id or name, or for all flavors.
///
/// # Errors
/// 404 for an unknown flavor, 503 if too many other requests wait; store errors.
pub async fn of_cloud(compute: &Compute, wanted: Option<String>) -> Result<CloudCapacity, Error> {
    let chosen = choose(compute, wanted).await?;
    compute.catch_up().await;
    let (compute, world) = (compute.clone(), compute.world.snapshot());
    on_thread(move || count(&compute, &world, chosen)).await
}

/// Runs a long search on a thread of the pool.
///
/// # Errors
/// 503 if too many other requests wait for a thread.
pub(crate) async fn on_thread<T, F>(work: F) -> Result<T, Error>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let threads = THREADS.as_ref().map_err(Refusal::internal)?;
    threads.run(work).await.map_err(|error| Refusal::unavailable(error).into())
}

/// The flavor with this id or name, or all flavors in the order of their names.
///
/// # Errors
/// 404 for an unknown flavor; store errors.
pub(crate) async fn choose(
    compute: &Compute,
    wanted: Option<String>,
) -> Result<Vec<Chosen>, Error> {
    let named = wanted.clone();
    let chosen = compute
        .store
        .read(move |tx| {
            let mut chosen = flavors::all(tx)?;
            if let Some(wanted) = &named {
                // An id takes precedence over a name, as in the clients.
                let by_id = chosen.iter().any(|flavor| flavor.id == *wanted);
                chosen.retain(|one| if by_id { one.id == *wanted } else { one.name == *wanted });
            }
            chosen.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
            let chosen = chosen.into_iter().map(flavor_of);
            let chosen = chosen.map(|flavor| Ok((ports::of_flavor(tx, &flavor)?, flavor)));
            chosen.collect::<Result<Vec<Chosen>, Error>>()
        })
        .await?;
    if let (Some(wanted), true) = (wanted, chosen.is_empty()) {
        let why = format!("Flavor {} could not be found.", wanted.escape_debug());
        return Err(Refusal::not_found(why).into());
    }
    Ok(chosen)
}

/// A flavor with its device profile, or the reason why the profile cannot be used.
pub(crate) type Chosen = (Result<Option<ProfileGroups>, String>, FlavorOf);

fn count(compute: &Compute, world: &Arc<Snapshot>, chosen: Vec<Chosen>) -> CloudCapacity {
    let (equal, mut left) = (EqualHosts::of(world), Searches(SEARCHES));
    let now = time::now();
    let mut flavors = Vec::with_capacity(chosen.len());
    for (profile, flavor) in chosen {
        let (id, name) = (flavor.id.clone(), flavor.name.clone());
        let spec = spec_of(flavor);
        let fits = match profile.and_then(|profile| query_of(compute, &spec, profile)) {
            Err(why) => Fits::Unusable(why),
            Ok(query) => {
                let counted = constrained(compute.scope(), &spec, now, |constraints| {
                    capacity::capacity(world, &equal, constraints, &query, &mut left)
                });
                match counted {
                    Ok(Some(counted)) => Fits::Counted(counted),
                    Ok(None) => Fits::NotCounted,
                    Err(why) => Fits::Unusable(why.owner_text()),
                }
            }
        };
        flavors.push((id, name, fits));
    }
    let hosts = compute.fleet.all();
    let up = hosts.iter().filter(|host| host.takes_servers(now)).count();
    CloudCapacity { flavors, devices: capacity::devices(world), hosts: hosts.len(), up }
}

pub(crate) fn query_of(
    compute: &Compute,
    spec: &Spec,
    flavor: Option<ProfileGroups>,
) -> Result<Query, String> {
    let profiles = Profiles { flavor, ..Profiles::default() };
    let aliases = &compute.options.pci_aliases;
    match boot::query_of(&spec.flavor, &spec.image_properties, &profiles, aliases, 0) {
        Ok(query) => Ok(query),
        Err(Error::Refused(fault)) => Err(fault.message),
        Err(error) => Err(error.to_string()),
    }
}

/// Runs `work` with the constraints of a server that only its specification restricts.
pub(crate) fn constrained<T>(
    scope: Scope<'_>,
    spec: &Spec,
    now: Timestamp,
    work: impl FnOnce(&Constraints<'_>) -> T,
) -> T {
    let (nobody, facts) = (HashSet::new(), Facts::default());
    work(&Constraints::new(scope, ("", spec), &facts, &nobody, now))
}

/// The specification of a server, determined by its flavor alone.
pub(crate) fn spec_of(flavor: FlavorOf) -> Spec {
    Spec {
        flavor,
        local_disks: LocalDisks::default(),
        image: None,
        image_properties: BTreeMap::new(),
        key_name: None,
        key: None,
        hostname: String::new(),
        config_drive: false,
        user_data: None,
        availability_zone: None,
        wanted_host: None,
        hints: SchedulerHints::default(),
        reservation_id: String::new(),
        launch_index: 0,
        access: [String::new(), String::new()],
        disk_config: "AUTO".to_owned(),
        networked: false,
        creator: Creator::default(),
        image_numbers: ImageNumbers::default(),
        dynamic_vendordata: false,
        files: Vec::new(),
    }
}
