//! Builds hosts from a parsed file. Every refusal names its key.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use kilonova_devices::{
    Cleanup, DeviceSpec, Discovery, Driver, Fake, HealthOptions, Links, MdevConfig, MdevOptions,
    Models, NicOptions, NvmeSpec, PciAddress, XidPolicy,
};
use kilonova_hypervisor::Step;
use kilonova_hypervisor::simulated::{Failure, GuestLocation};
use kilonova_ids::HostName;
use kilonova_node_api::{
    DeviceKind, GuestVerb, NumaCell, VARIANT_LIVE_MIGRATION, VGPU_LIVE_MIGRATION,
};

use super::cards::{KnownCard, card_of, tree};
use super::cells::cells;
use super::file::{FailEntry, FakeEntry, File, HostEntry};
use super::{Host, HostTemplate};
use crate::simulated::SimulatedSysfs;

/// Key and reason.
pub(super) type Refusal = (String, String);

pub(super) fn place(text: &str, error: &toml::de::Error) -> Refusal {
    let at = error.span().map_or(0, |span| span.start.min(text.len()));
    let line = text.as_bytes()[..at].iter().filter(|b| **b == b'\n').count() + 1;
    (format!("line {line}"), error.message().replace('\n', " "))
}

pub(super) fn hosts(
    file: File,
    options: &MdevOptions,
    cleanup: &Cleanup,
) -> Result<Vec<Host>, Refusal> {
    let mut cards = BTreeMap::new();
    for (name, card) in file.card {
        cards.insert(name.clone(), card_of(&name, card)?);
    }
    let mut hosts = Vec::new();
    let mut names = BTreeSet::new();
    for (index, entry) in file.host.into_iter().enumerate() {
        let key = format!("host[{index}]");
        for host in expand(&key, entry, &cards, options, cleanup)? {
            if !names.insert(host.name.clone()) {
                return Err((format!("{key}.name"), format!("duplicate host name {}", host.name)));
            }
            hosts.push(host);
        }
    }
    Ok(hosts)
}

fn expand(
    key: &str,
    entry: HostEntry,
    cards: &BTreeMap<String, KnownCard>,
    options: &MdevOptions,
    cleanup: &Cleanup,
) -> Result<Vec<Host>, Refusal> {
    let names = names(key, &entry)?;
    let addresses = addresses(key, entry.address.as_deref(), names.len())?;
    let machine_id = entry.machine_id.clone().unwrap_or_default();
    if names.len() > 1 && !machine_id.is_empty() {
        let why = "several hosts cannot have the same machine id".to_owned();
        return Err((format!("{key}.machine_id"), why));
    }
    let template = Arc::new(template(key, entry, cards, options, cleanup)?);
    let host = |(name, address): (String, String)| {
        let machine_id = machine_id.clone();
        Host {
            name: HostName::verbatim(name),
            address,
            machine_id,
            template: Arc::clone(&template),
        }
    };
    Ok(names.into_iter().zip(addresses).map(host).collect())
}

fn names(key: &str, entry: &HostEntry) -> Result<Vec<String>, Refusal> {
    let key = format!("{key}.name");
    let names: Vec<String> = match (entry.count, entry.name.contains("{n}")) {
        (None, false) => vec![entry.name.clone()],
        (None, true) => return Err((key, "{n} needs count".to_owned())),
        (Some(_), false) => return Err((key, "with count, the name must contain {n}".to_owned())),
        (Some(count), true) => {
            let width = count.to_string().len();
            (1..=count).map(|n| entry.name.replace("{n}", &format!("{n:0width$}"))).collect()
        }
    };
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    match names
        .iter()
        .find(|name| name.is_empty() || name.starts_with('.') || !name.bytes().all(fits))
    {
        Some(name) => Err((key, format!("'{name}' is not a host name"))),
        None => Ok(names),
    }
}

fn addresses(key: &str, first: Option<&str>, count: usize) -> Result<Vec<String>, Refusal> {
    let key = format!("{key}.address");
    let first = first.unwrap_or("127.0.0.1");
    if count == 1 && first.parse::<std::net::IpAddr>().is_ok() {
        return Ok(vec![first.to_owned()]);
    }
    let start: Ipv4Addr = first
        .parse()
        .map_err(|_| (key.clone(), format!("'{first}' is not an IPv4 address to start from")))?;
    let last = u32::try_from(count).ok().and_then(|count| u32::from(start).checked_add(count));
    let last = last.ok_or((key, "not enough addresses after it".to_owned()))?;
    Ok((u32::from(start)..last).map(|n| Ipv4Addr::from(n).to_string()).collect())
}

fn template(
    key: &str,
    entry: HostEntry,
    cards: &BTreeMap<String, KnownCard>,
    options: &MdevOptions,
    cleanup: &Cleanup,
) -> Result<HostTemplate, Refusal> {
    let sizes =
        [("vcpus", entry.vcpus), ("memory_mb", entry.memory_mb), ("disk_gb", entry.disk_gb)];
    if let Some((field, _)) = sizes.iter().find(|(_, size)| *size < 0) {
        return Err((format!("{key}.{field}"), "it must not be negative".to_owned()));
    }
    let given =
        [entry.cpu_allocation_ratio, entry.ram_allocation_ratio, entry.disk_allocation_ratio];
    let [cpu, ram, disk] = given;
    let ratios = [cpu.unwrap_or(CPU_RATIO), ram.unwrap_or(1.0), disk.unwrap_or(1.0)];
    if ratios.iter().any(|ratio| !ratio.is_finite() || *ratio <= 0.0) {
        return Err((
            format!("{key}.cpu_allocation_ratio"),
            "allocation ratios must be above 0".to_owned(),
        ));
    }
    if entry.max_concurrent_builds == 0 {
        return Err((format!("{key}.max_concurrent_builds"), "it must be at least 1".to_owned()));
    }
    let cells = cells(key, &entry)?;
    let (tree, functions) = tree(key, &entry.card, cards)?;
    let tree = Arc::new(tree);
    let sysfs = SimulatedSysfs::in_memory(Arc::clone(&tree));
    let cleanup = match &entry.devices {
        None => cleanup.clone(),
        Some(own) => Cleanup::new(&own.cleanup_command, own.cleanup_timeout)
            .map_err(|why| (format!("{key}.devices.cleanup_command"), why))?,
    };
    let xid_policy = entry.devices.as_ref().map_or("", |own| own.xid_policy.as_str());
    let xid_policy =
        XidPolicy::parse(xid_policy).map_err(|why| (format!("{key}.devices.xid_policy"), why))?;
    let links = entry.devices.as_ref().map_or(&[][..], |own| &own.nvlink_islands);
    let links =
        Links::parse(links).map_err(|why| (format!("{key}.devices.nvlink_islands"), why))?;
    let health = HealthOptions { kernel_log: None, xid_policy };
    let own = match (entry.devices, entry.mdev) {
        (None, None) => None,
        (devices, groups) => {
            let devices = devices.unwrap_or_default();
            Some(MdevOptions {
                enabled: devices.enabled_mdev_types,
                groups: groups.unwrap_or_default(),
                retyping: devices.mdev_retyping,
                mig_instances: devices.mig_instances,
            })
        }
    };
    let mdev = MdevConfig::new(own.as_ref().unwrap_or(options), &sysfs).map_err(|error| {
        let from = if own.is_some() { "" } else { "from the configuration file: " };
        (format!("{key}.devices"), format!("{from}{error}"))
    })?;
    let fakes = entry.fake.iter().enumerate();
    let fakes = fakes
        .map(|(index, fake)| fake_of(&format!("{key}.fake[{index}]"), fake))
        .collect::<Result<_, _>>()?;
    let mut specs = Vec::new();
    for (index, text) in entry.pci.device_spec.iter().enumerate() {
        let wrong = |error: kilonova_devices::Error| {
            (format!("{key}.pci.device_spec[{index}]"), error.to_string())
        };
        specs.extend(DeviceSpec::parse(text).map_err(wrong)?);
    }
    let mut nvme = Vec::new();
    for (index, text) in entry.nvme.device_spec.iter().enumerate() {
        let wrong = |error: kilonova_devices::Error| {
            (format!("{key}.nvme.device_spec[{index}]"), error.to_string())
        };
        nvme.extend(NvmeSpec::parse(text).map_err(wrong)?);
    }
    let drivers = Driver::parse(&entry.agent.enabled_drivers.join(","))
        .map_err(|error| (format!("{key}.agent.enabled_drivers"), error.to_string()))?;
    let mappings = &entry.x710_static;
    let nics =
        NicOptions::new(&mappings.physical_device_mappings, &mappings.function_device_mappings)
            .map_err(|error| (format!("{key}.x710_static"), error.to_string()))?;
    let (times, create_mdev) = times(key, &entry.times_ms)?;
    let (failures, create_mdev_failures) = failures(key, entry.fail)?;
    let dedicated = |cell: &NumaCell| !cell.dedicated.is_empty();
    let has_dedicated = cells.as_ref().is_some_and(|cells| cells.iter().any(dedicated));
    Ok(HostTemplate {
        vcpus: entry.vcpus,
        memory_mb: entry.memory_mb,
        disk_gb: entry.disk_gb,
        ratios,
        initial_ratios: given.map(|ratio| ratio.is_none()),
        reserved_memory_mb: entry.reserved_host_memory_mb,
        reserved_cpus: entry.reserved_host_cpus,
        reserved_disk_gb: entry.reserved_host_disk_mb.saturating_add(1023) / 1024,
        traits: entry.traits.unwrap_or_else(|| TRAITS.map(str::to_owned).to_vec()),
        cells,
        numa_in_placement: entry.numa_in_placement.unwrap_or(has_dedicated),
        concurrency: entry.max_concurrent_builds,
        tree,
        discovery: Arc::new(Discovery {
            mdev,
            specs,
            nvme,
            drivers,
            nics,
            functions,
            fakes,
            cleanup,
            health,
            links,
            models: Models::default(),
        }),
        times,
        create_mdev,
        failures,
        create_mdev_failures,
    })
}

fn fake_of(key: &str, entry: &FakeEntry) -> Result<Fake, Refusal> {
    let first = PciAddress::parse(&entry.address).ok_or_else(|| {
        (format!("{key}.address"), format!("'{}' is not like 0000:0c:00.0", entry.address))
    })?;
    let handles = (0..entry.count)
        .map(|n| first.plus(n).map(|address| address.to_string()))
        .collect::<Option<Vec<_>>>()
        .ok_or_else(|| (format!("{key}.count"), "not enough addresses".to_owned()))?;
    Ok(Fake {
        address: entry.address.clone(),
        name: entry.name.clone(),
        kind: DeviceKind::Fpga,
        resource_class: entry.resource_class.clone(),
        traits: entry.traits.clone(),
        handles,
    })
}

/// Nova's default of `initial_cpu_allocation_ratio`.
const CPU_RATIO: f64 = 4.0;

/// The traits of a host without explicit traits.
const TRAITS: [&str; 4] =
    ["COMPUTE_NODE", "COMPUTE_ACCELERATORS", VGPU_LIVE_MIGRATION, VARIANT_LIVE_MIGRATION];

/// The steps that a topology may delay or fail, in addition to the steps of verbs.
const STEPS: &[Step] = &[
    Step::Image,
    Step::Define,
    Step::Start,
    Step::Stop,
    Step::Reboot,
    Step::Destroy,
    Step::Pause,
    Step::Unpause,
    Step::Suspend,
    Step::Resume,
    Step::Snapshot,
    Step::Inspect,
    Step::Receive,
    Step::Migrate,
    Step::Volume,
];
const CREATE_MDEV: &str = "create_mdev";

fn step(key: &str, name: &str) -> Result<Step, Refusal> {
    let steps = || STEPS.iter().copied().chain(GuestVerb::ALL.iter().copied().map(Step::Verb));
    steps().find(|step| step.as_str() == name).ok_or_else(|| {
        let all: Vec<&str> = steps().map(Step::as_str).collect();
        (key.to_owned(), format!("'{name}' is not a step: {CREATE_MDEV}, {}", all.join(", ")))
    })
}

fn times(
    key: &str,
    written: &BTreeMap<String, u64>,
) -> Result<(BTreeMap<Step, Duration>, Duration), Refusal> {
    let mut times = BTreeMap::new();
    let mut create_mdev = Duration::ZERO;
    for (name, milliseconds) in written {
        let time = Duration::from_millis(*milliseconds);
        if name == CREATE_MDEV {
            create_mdev = time;
        } else {
            times.insert(step(&format!("{key}.times_ms.{name}"), name)?, time);
        }
    }
    Ok((times, create_mdev))
}

fn failures(key: &str, entries: Vec<FailEntry>) -> Result<(Vec<Failure>, Option<u32>), Refusal> {
    let mut failures = Vec::new();
    let mut create_mdev = Some(0);
    for (index, entry) in entries.into_iter().enumerate() {
        let key = format!("{key}.fail[{index}]");
        if entry.step == CREATE_MDEV {
            if entry.server_name.is_some() {
                let why = "the kernel does not know servers".to_owned();
                return Err((format!("{key}.server_name"), why));
            }
            create_mdev = entry.times;
            continue;
        }
        let step = step(&format!("{key}.step"), &entry.step)?;
        failures.push(Failure {
            step,
            server_name: entry.server_name.unwrap_or_else(|| "*".to_owned()),
            times: entry.times,
            guest: guest_location(&format!("{key}.guest"), step, entry.guest.as_deref())?,
        });
    }
    Ok((failures, create_mdev))
}

fn guest_location(key: &str, step: Step, written: Option<&str>) -> Result<GuestLocation, Refusal> {
    let wrong = |why: &str| Err((key.to_owned(), why.to_owned()));
    match (written, step) {
        (None, _) => Ok(GuestLocation::Source),
        (Some(_), step) if step != Step::Migrate => wrong("only step migrate has it"),
        (Some("source"), _) => Ok(GuestLocation::Source),
        (Some("destination"), _) => Ok(GuestLocation::Destination),
        (Some("both"), _) => Ok(GuestLocation::Both),
        (Some(other), _) => wrong(&format!("'{other}' must be source, destination or both")),
    }
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
