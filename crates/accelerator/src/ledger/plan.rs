//! A host's report, validated and converted to the rows that should exist.
//!
//! Pure: equal reports give equal plans, so an unchanged report writes nothing.

use std::collections::{BTreeMap, BTreeSet};

use kilonova_engine::Inventory;
use kilonova_ids::{HostName, ProviderId, ResourceClass, nearness};
use kilonova_node_api::{Deployable, Device, HandleSlot};
use kilonova_placement::ledger::ProviderSpec;
use newtype_uuid::GenericUuid;
use uuid::Uuid;

use super::near::{Places, places};
use crate::Error;
use crate::db::handles::HandleKey;
use crate::db::mig;
use crate::states::AttachType;

/// Maximum number of mediated devices of one deployable; more indicates a broken driver.
const MAX_HANDLES: i64 = 4096;

/// A deployable that should exist.
pub(super) struct DeployablePlan<'a> {
    pub deployable: &'a Deployable,
    /// Name of the provider: `<host>_<name>`.
    pub name: String,
    /// The provider UUID that Cyborg derives from the name.
    pub provider: ProviderId,
    /// The resource class of its handles.
    pub class: ResourceClass,
    /// Number of handles by kind.
    pub handles: BTreeMap<HandleKey, i64>,
    /// The maximum number of GPU instances, which may be smaller than the number of functions.
    most: Option<i64>,
    /// The traits that state where its device is.
    places: Vec<String>,
}

/// A device that should exist.
pub(super) struct DevicePlan<'a> {
    pub device: &'a Device,
    pub deployables: Vec<DeployablePlan<'a>>,
    /// The geometry of a GPU in MIG mode, for its row.
    pub mig: Option<String>,
    /// Where it is.
    pub places: Places,
}

impl DevicePlan<'_> {
    /// The address of its card: that of its physical function, or its own.
    pub fn card(&self) -> &str {
        self.device.card_address()
    }
}

impl DeployablePlan<'_> {
    /// The resource class and the traits as attributes.
    pub fn attributes(&self) -> Vec<(String, String)> {
        let traits = self.deployable.traits.iter().enumerate();
        traits
            .map(|(at, name)| (format!("traits{}", at + 1), name.clone()))
            .chain([("rc".to_owned(), self.class.to_string())])
            .chain(self.deployable.facts.clone())
            .collect()
    }

    /// The provider for Placement; `withheld` units of it are reserved. Without handles it has no
    /// inventory.
    pub fn provider(&self, withheld: i64) -> ProviderSpec {
        let total: i64 = self.handles.values().sum::<i64>().min(self.most.unwrap_or(i64::MAX));
        ProviderSpec {
            id: self.provider,
            name: self.name.clone(),
            inventories: units(&self.class, total, withheld),
            initial_ratios: Vec::new(),
            traits: with_places(self.deployable.traits.clone(), &self.places),
        }
    }
}

/// The traits of a provider. Only the ledger states where a device is; such traits from the agent are dropped.
pub(super) fn with_places(mut traits: Vec<String>, places: &[String]) -> Vec<String> {
    traits.retain(|name| !nearness::is_place(name));
    traits.extend_from_slice(places);
    traits
}

/// An inventory of `total` units, of which `withheld` are reserved.
pub(super) fn units(
    class: &ResourceClass,
    total: i64,
    withheld: i64,
) -> Vec<(ResourceClass, Inventory)> {
    let inventory = Inventory { reserved: withheld.min(total), ..Inventory::of(total) };
    if total > 0 { vec![(class.clone(), inventory)] } else { Vec::new() }
}

/// Validates and converts a report.
pub(super) fn plan<'a>(
    host: &HostName,
    devices: &'a [Device],
) -> Result<Vec<DevicePlan<'a>>, Error> {
    let wrong = |reason: String| Error::Report { host: host.clone(), reason };
    if host.is_empty() {
        return Err(wrong("the host has no name".into()));
    }
    let mut addresses = BTreeSet::new();
    let mut names = BTreeSet::new();
    let mut plans = Vec::new();
    for (device, places) in devices.iter().zip(places(devices)) {
        if device.address.is_empty() {
            return Err(wrong("a device has no address".into()));
        }
        if !addresses.insert(device.address.as_str()) {
            return Err(wrong(format!("two devices have the address {:?}", device.address)));
        }
        let mut deployables = Vec::new();
        for deployable in &device.deployables {
            if deployable.name.is_empty() {
                let address = &device.address;
                return Err(wrong(format!("a deployable of the device {address:?} has no name")));
            }
            if !names.insert(deployable.name.as_str()) {
                return Err(wrong(format!("two deployables have the name {:?}", deployable.name)));
            }
            if deployable.resource_class.is_empty() {
                return Err(wrong(format!(
                    "deployable {:?} has no resource class",
                    deployable.name
                )));
            }
            let class = ResourceClass::parse(&deployable.resource_class).map_err(|why| {
                let Deployable { name, resource_class, .. } = deployable;
                wrong(format!("deployable {name:?} is of the class {resource_class:?}; {why}"))
            })?;
            let handles = handles(device, deployable);
            if handles.values().sum::<i64>() > MAX_HANDLES {
                let name = &deployable.name;
                return Err(wrong(format!(
                    "deployable {name:?} has more than {MAX_HANDLES} handles"
                )));
            }
            let name = format!("{host}_{}", deployable.name);
            let provider =
                ProviderId::from_untyped_uuid(Uuid::new_v3(&Uuid::NAMESPACE_DNS, name.as_bytes()));
            let most = most(device, deployable, &handles).map_err(wrong)?;
            let places = places.traits.clone();
            let plan = DeployablePlan { deployable, name, provider, class, handles, most, places };
            deployables.push(plan);
        }
        let mig = device.mig.as_ref().map(|mig| {
            mig::geometry(mig)?;
            serde_json::to_string(mig).map_err(|error| error.to_string())
        });
        let address = &device.address;
        let mig = mig.transpose().map_err(|why| wrong(format!("device {address:?}: {why}")))?;
        plans.push(DevicePlan { device, deployables, mig, places });
    }
    Ok(plans)
}

/// The maximum number of instances of the profile that a deployable's type needs, on a GPU in MIG mode.
fn most(
    device: &Device,
    deployable: &Deployable,
    handles: &BTreeMap<HandleKey, i64>,
) -> Result<Option<i64>, String> {
    let Some(mig) = &device.mig else { return Ok(None) };
    let types: BTreeSet<&str> = handles.keys().map(|key| key.mdev_type.as_str()).collect();
    let name = &deployable.name;
    if types.len() > 1 || handles.keys().any(|key| key.attach_type != AttachType::Vfio) {
        return Err(format!(
            "deployable {name:?} of a GPU in MIG mode has no functions of one type"
        ));
    }
    let Some(vgpu_type) = types.first() else { return Ok(None) };
    let profile = mig.profiles.iter().find(|one| one.vgpu_types.iter().any(|of| of == vgpu_type));
    let profile = profile.ok_or_else(|| {
        format!("deployable {name:?} has vGPU type {vgpu_type:?}, which needs no GPU instance")
    })?;
    Ok(Some(i64::from(profile.most)))
}

fn handles(device: &Device, deployable: &Deployable) -> BTreeMap<HandleKey, i64> {
    let mut handles = BTreeMap::new();
    for slot in &deployable.slots {
        let (attach_type, address, mdev_type, count) = match slot {
            HandleSlot::Mdev { mdev_type, count } => {
                (AttachType::Mdev, &device.address, mdev_type.as_str(), i64::from(*count))
            }
            HandleSlot::Pci { address } => (AttachType::Pci, address, "", 1),
            HandleSlot::Vfio { address, vgpu_type } => {
                (AttachType::Vfio, address, vgpu_type.as_str(), 1)
            }
            HandleSlot::TestPci { address } => (AttachType::TestPci, address, "", 1),
        };
        let key =
            HandleKey { attach_type, address: address.clone(), mdev_type: mdev_type.to_owned() };
        let have = handles.entry(key).or_insert(0);
        *have = match attach_type {
            AttachType::Mdev => *have + count,
            AttachType::Pci | AttachType::TestPci | AttachType::Vfio => 1,
        };
    }
    handles
}
