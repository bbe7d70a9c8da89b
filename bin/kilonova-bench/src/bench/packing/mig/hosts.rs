//! Cards of simulated hosts: the scheduler chooses, and the ledger assigns, as for a boot.
//!
//! No services or agents run. A host's cards are those that its agent would report, and a deleted guest's host
//! acknowledges immediately.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::Timestamp;
use kilonova_accelerator::ledger as devices;
use kilonova_compute_db::fleet::{About, HostRow, Version};
use kilonova_compute_db::servers::Spec;
use kilonova_compute_scheduler::fleet::Fleet as Scheduled;
use kilonova_compute_scheduler::packer::Packer;
use kilonova_compute_scheduler::{Constraints, Facts, Rules, Scope, places};
use kilonova_engine::{Candidate, Group, Inventory, Query};
use kilonova_ids::{ConsumerId, HostId, HostName, ProviderId, ResourceClass, ServerId};
use kilonova_node::Node;
use kilonova_node::devices::{MigScan, ScanContext};
use kilonova_node::topology::Topology;
use kilonova_node_api::Device;
use kilonova_packing::mig::Geometry;
use kilonova_placement::ledger::{self as placement, ProviderSpec};
use kilonova_placement::{MIGRATIONS, World};
use kilonova_store::{DatabaseUrl, Store};
use serde_json::json;
use tokio::runtime::Runtime;

use super::{Fleet, PROFILES, ProfilePolicy};

/// The number of this process's databases so far.
static DATABASES: AtomicUsize = AtomicUsize::new(0);

/// Simulated hosts with six cards each.
pub struct Hosts {
    runtime: Runtime,
    store: Store,
    world: World,
    fleet: Scheduled,
    packer: Packer,
    rules: Rules,
    spec: Spec,
    names: HashMap<ProviderId, HostName>,
    classes: [ResourceClass; 6],
    requests: u64,
    _folder: Folder,
}

/// A directory that is deleted when this value is dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // Leftover files are in the directory for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Hosts {
    /// Hosts with `cards` cards in total, a multiple of six.
    pub fn new(geometry: &Geometry, policy: ProfilePolicy, cards: usize) -> Result<Self, String> {
        let number = DATABASES.fetch_add(1, Ordering::Relaxed);
        let name = format!("kilonova-bench-mig-{}-{number}", std::process::id());
        let folder = Folder(std::env::temp_dir().join(name));
        std::fs::create_dir_all(&folder.0).map_err(text)?;
        let topology = topology(geometry, policy, cards / PROFILES.len());
        let topology = Topology::parse(&topology, &folder.0).map_err(text)?;
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(text)?;
        let (world, fleet) = (World::new(), Scheduled::default());
        let mut names = HashMap::new();
        let store = runtime.block_on(async {
            let url = DatabaseUrl::Sqlite(folder.0.join("kilonova.db"));
            let store = Store::open(&url).await.map_err(text)?;
            let lists =
                [kilonova_changes::MIGRATIONS, MIGRATIONS, kilonova_accelerator::MIGRATIONS];
            store.migrate(&lists.concat()).await.map_err(text)?;
            for (at, host) in topology.hosts.iter().enumerate() {
                let node = Node::simulated(host, &folder.0).map_err(text)?;
                let root = root(host.name.as_str());
                report(&store, &world, root.clone(), host.name.clone(), devices_of(&node)?).await?;
                names.insert(root.id, host.name.clone());
                fleet.refresh(&row(at, host.name.clone(), root.id));
            }
            Ok::<_, String>(store)
        })?;
        let classes = PROFILES.map(|name| ResourceClass::verbatim(class(name)));
        Ok(Self {
            runtime,
            store,
            world,
            fleet,
            packer: Packer::default(),
            rules: Rules::default(),
            spec: serde_json::from_value(spec()).map_err(text)?,
            names,
            classes,
            requests: 0,
            _folder: folder,
        })
    }

    /// The candidates of a request, best first.
    fn candidates(&mut self, wanted: usize) -> Vec<Candidate> {
        self.requests += 1;
        let amounts = [("VCPU", 1), ("MEMORY_MB", 512)];
        let mut resources: Vec<_> =
            amounts.map(|(class, amount)| (ResourceClass::verbatim(class), amount)).into();
        resources.push((self.classes[wanted].clone(), 1));
        let groups = vec![Group { resources, ..Group::default() }];
        let query = Query { groups, seed: self.requests, ..Query::default() };
        self.packer.record(&query, 1);
        let scope = Scope { fleet: &self.fleet, packer: &self.packer, rules: &self.rules };
        let (facts, excluded) = (Facts::default(), HashSet::new());
        let now = Timestamp::UNIX_EPOCH;
        let constraints = Constraints::new(scope, ("bench", &self.spec), &facts, &excluded, now);
        let plan = places(&self.world.snapshot(), &constraints, &query, 1).unwrap_or_default();
        plan.into_iter().next().map(|choice| choice.candidates).unwrap_or_default()
    }
}

impl Fleet for Hosts {
    type Guest = ConsumerId;

    fn place(&mut self, wanted: usize) -> Result<Option<ConsumerId>, String> {
        for candidate in self.candidates(wanted) {
            let host = self.names.get(&candidate.root).cloned().ok_or("a host has no name")?;
            let (world, consumer) = (self.world.clone(), ConsumerId::new_v4());
            let work = move |tx: &mut kilonova_store::Tx<'_>| {
                claim(tx, &world, consumer, &host, &candidate)
            };
            match self.runtime.block_on(self.store.write(work)) {
                Ok(()) => return Ok(Some(consumer)),
                // The next candidate may still have room.
                Err(kilonova_accelerator::Error::NoHandle(_)) => {}
                Err(kilonova_accelerator::Error::Placement(why)) if why.no_longer_fits() => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(None)
    }

    fn remove(&mut self, guest: ConsumerId) -> Result<(), String> {
        let world = self.world.clone();
        let work = move |tx: &mut kilonova_store::Tx<'_>| {
            devices::release(tx, &world, guest)?;
            placement::release(tx, &world, guest)?;
            Ok::<_, kilonova_accelerator::Error>(())
        };
        self.runtime.block_on(self.store.write(work)).map_err(text)
    }
}

/// Claims the resources and binds the accelerators of a candidate, in one transaction.
fn claim(
    tx: &mut kilonova_store::Tx<'_>,
    world: &World,
    consumer: ConsumerId,
    host: &HostName,
    candidate: &Candidate,
) -> Result<(), kilonova_accelerator::Error> {
    let allocation = |(provider, class, amount): &(ProviderId, ResourceClass, i64)| {
        placement::Allocation { provider: *provider, class: class.clone(), amount: *amount }
    };
    let claim = placement::Claim {
        consumer,
        consumer_type: Some("INSTANCE".into()),
        project_id: "bench".into(),
        user_id: "bench".into(),
        allocations: candidate.allocations.iter().map(allocation).collect(),
    };
    placement::claim(tx, world, &claim)?;
    let parts = candidate.allocations.iter().filter(|(provider, ..)| *provider != candidate.root);
    let wants: Vec<devices::BindRequest> = parts
        .map(|(provider, _, count)| devices::BindRequest {
            provider: *provider,
            count: *count,
            group: 0,
            profile: None,
        })
        .collect();
    devices::bind(tx, world, ServerId::new_v4(), consumer, "bench", host, &wants)?;
    Ok(())
}

/// The devices that the agent of a host would report.
fn devices_of(node: &Node) -> Result<Vec<Device>, String> {
    let parts = node.parts();
    let cards = parts.mig.cards().map_err(text)?;
    let mig = Some(MigScan { cards: &cards, is_ours: &|_| false });
    let context = ScanContext { mig, ..ScanContext::default() };
    let found = parts.discovery.scan_with(&*parts.sysfs, &|_| false, context).map_err(text)?;
    match found.problems.first() {
        Some(problem) => Err(format!("{}: {}", problem.address, problem.reason)),
        None => Ok(found.devices),
    }
}

async fn report(
    store: &Store,
    world: &World,
    root: ProviderSpec,
    host: HostName,
    devices: Vec<Device>,
) -> Result<(), String> {
    let world = world.clone();
    let work = move |tx: &mut kilonova_store::Tx<'_>| {
        let children = devices::report(tx, &host, &devices)?;
        placement::report_host(tx, &world, &root, &children)?;
        Ok::<_, kilonova_accelerator::Error>(())
    };
    store.write(work).await.map_err(text)
}

fn root(name: &str) -> ProviderSpec {
    let stock = |class: &str, total| (ResourceClass::verbatim(class), Inventory::of(total));
    ProviderSpec {
        id: ProviderId::new_v4(),
        name: name.to_owned(),
        inventories: vec![stock("VCPU", 256), stock("MEMORY_MB", 1 << 20)],
        initial_ratios: Vec::new(),
        traits: Vec::new(),
    }
}

fn row(at: usize, host: HostName, root: ProviderId) -> HostRow {
    HostRow {
        version: Version { number: at as i64 + 1, revision: 0, epoch: 1 },
        host,
        id: HostId::new_v4(),
        root,
        generation: 1,
        enabled: true,
        forced_down: false,
        availability_zone: "nova".into(),
        last_seen: Timestamp::UNIX_EPOCH,
        reported_at: Timestamp::UNIX_EPOCH,
        about: About::default(),
    }
}

fn spec() -> serde_json::Value {
    json!({
        "flavor": {
            "id": "1", "name": "slice", "vcpus": 1, "ram": 512, "disk": 0, "ephemeral": 0, "swap": 0,
            "extra_specs": {},
        },
        "image": null, "image_properties": {}, "key_name": null, "hostname": "", "config_drive": false,
        "user_data": null, "availability_zone": null, "wanted_host": null, "hints": {}, "reservation_id": "",
        "launch_index": 0, "access": ["", ""], "disk_config": "AUTO",
    })
}

/// `CUSTOM_MIG_1G_5GB` of `1g.5gb`.
fn class(profile: &str) -> String {
    format!("CUSTOM_MIG_{}", profile.replace('.', "_").to_uppercase())
}

/// A topology file of hosts with six cards. Static cards have one type each; retyped cards change it while they are
/// empty, as mediated devices; mixed ones are in MIG mode.
fn topology(geometry: &Geometry, policy: ProfilePolicy, hosts: usize) -> String {
    let addresses: Vec<String> =
        (0..PROFILES.len()).map(|at| format!("0000:{:02x}:00.0", 0x41 + at)).collect();
    let ids: Vec<String> = (1..=PROFILES.len()).map(|at| format!("nvidia-{at}")).collect();
    let types = ids.iter().zip(PROFILES).map(|(id, name)| {
        let most = geometry.find(name).map_or(0, |at| geometry.profiles()[at].most);
        let more = match policy {
            ProfilePolicy::Mixed => format!("mig_profile = \"{name}\""),
            ProfilePolicy::EqualParts | ProfilePolicy::Retyped => {
                format!("description = \"num_heads=4, max_instance={most}\"")
            }
        };
        format!("{{ id = \"{id}\", name = \"{name}\", available_instances = {most}, {more} }}")
    });
    let (card, options) = match policy {
        ProfilePolicy::EqualParts => ("exclusive_types = true", ""),
        ProfilePolicy::Retyped => ("exclusive_types = true", ", mdev_retyping = true"),
        ProfilePolicy::Mixed => (
            "vfio_types = true\nmig = \"a100-40gb\"",
            ", mdev_retyping = true, mig_instances = true",
        ),
    };
    let types: Vec<String> = types.collect();
    let groups = ids.iter().zip(PROFILES).zip(&addresses).map(|((id, name), address)| {
        let only = match policy {
            ProfilePolicy::EqualParts => format!(", device_addresses = [\"{address}\"]"),
            ProfilePolicy::Retyped | ProfilePolicy::Mixed => String::new(),
        };
        format!("mdev.{id} = {{ mdev_class = \"{}\"{only} }}\n", class(name))
    });
    format!(
        "[card.a100]\nvendor = \"10de\"\nproduct = \"20b0\"\nclass = \"030200\"\ndriver = \"nvidia\"\n{card}\n\
         types = [{}]\n[[host]]\nname = \"gpu{{n}}\"\ncount = {hosts}\nvcpus = 256\nmemory_mb = 1048576\ndisk_gb = 1000\n\
         card = [{{ card = \"a100\", addresses = {addresses:?}{} }}]\n\
         devices = {{ enabled_mdev_types = {ids:?}{options} }}\n{}",
        types.join(", "),
        if policy == ProfilePolicy::Mixed { ", vfs = 8" } else { "" },
        groups.collect::<String>()
    )
}

fn text(error: impl ToString) -> String {
    error.to_string()
}
