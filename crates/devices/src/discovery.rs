//! Builds the devices that an agent registers from sysfs and the options.
//!
//! Owns the precedence of options and drivers: a function that an option names is not available to
//! drivers. Only a host whose sysfs cannot be listed is an error; a problem of one device is
//! reported with that device.

use kilonova_node_api::Device;
use uuid::Uuid;

use crate::bus::Bus;
use crate::collector::{Collector, Found};
use crate::kinds::{self, KindInput};
use crate::{
    Cleanup, DeviceSpec, Driver, Error, Fake, Function, HealthOptions, KernelObject, Links,
    MdevConfig, MigCard, Models, NicOptions, NvmeSpec, Sysfs, TypeNames, Watch, parents,
    vgpu_state,
};

/// The options of device discovery.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Discovery {
    /// The types of mdev parents and vGPU functions.
    pub mdev: MdevConfig,
    /// The PCI functions for passthrough.
    pub specs: Vec<DeviceSpec>,
    /// The NVMe functions for passthrough.
    pub nvme: Vec<NvmeSpec>,
    /// The enabled Cyborg drivers.
    pub drivers: Vec<Driver>,
    /// The networks that network cards are connected to.
    pub nics: NicOptions,
    /// Functions of topology files for passthrough.
    pub functions: Vec<Function>,
    /// Fake devices.
    pub fakes: Vec<Fake>,
    /// Options of the health watch.
    pub health: HealthOptions,
    /// The cleaning of released functions.
    pub cleanup: Cleanup,
    /// The cards that are connected by NVLink.
    pub links: Links,
    /// The models of the host's devices.
    pub models: Models,
}

/// Facts that an agent remembers and sysfs does not show.
#[derive(Clone, Copy, Default)]
pub struct ScanContext<'a> {
    /// Past events of the devices.
    pub watch: Option<&'a Watch>,
    /// The names of types that the driver does not show now.
    pub names: Option<&'a TypeNames>,
    /// The cards in MIG mode.
    pub mig: Option<MigScan<'a>>,
}

/// The cards in MIG mode, and which of their objects guests of this cloud have.
#[derive(Clone, Copy)]
pub struct MigScan<'a> {
    /// The cards.
    pub cards: &'a [MigCard],
    /// True for an instance, or for the type of a function, that a guest of this cloud has.
    pub is_ours: &'a (dyn Fn(&KernelObject) -> bool + 'a),
}

impl Discovery {
    /// All devices of the host, by address. `is_ours` tells the mediated devices of this
    /// cloud's guests from foreign ones.
    pub fn devices(
        &self,
        sysfs: &dyn Sysfs,
        is_ours: &dyn Fn(Uuid) -> bool,
    ) -> Result<Vec<Device>, Error> {
        self.scan(sysfs, is_ours).map(|found| found.devices)
    }

    /// All devices of the host, with their current problems.
    pub fn scan(&self, sysfs: &dyn Sysfs, is_ours: &dyn Fn(Uuid) -> bool) -> Result<Found, Error> {
        self.scan_with(sysfs, is_ours, ScanContext::default())
    }

    /// All devices of the host, with their current problems. `context` adds facts that sysfs does not show.
    pub fn scan_with(
        &self,
        sysfs: &dyn Sysfs,
        is_ours: &dyn Fn(Uuid) -> bool,
        context: ScanContext<'_>,
    ) -> Result<Found, Error> {
        let mut collector = Collector::default();
        let bus = if self.needs_bus() {
            Bus::read(sysfs, &mut collector.problems)?
        } else {
            Bus::default()
        };
        let host = KindInput { sysfs, bus: &bus, context };
        if self.mdev.is_enabled() {
            kinds::mdev::find(&self.mdev, host, is_ours, &mut collector)?;
            kinds::mig::find(&self.mdev, host, &mut collector);
            kinds::vgpu::find(&self.mdev, host, &mut collector);
        }
        kinds::allowed::find(&self.specs, host, &mut collector);
        kinds::nvme::listed(&self.nvme, host, &mut collector);
        for function in &self.functions {
            function.find(host, &mut collector);
        }
        for driver in &self.drivers {
            driver.search(self, host, &mut collector);
        }
        for fake in &self.fakes {
            fake.find(&mut collector);
        }
        let mut found = collector.found(sysfs, (&bus, &self.models), context.watch);
        self.cleanup.set_cleaners(&mut found.devices);
        crate::near::set_places(&self.links, sysfs, &mut found.devices);
        Ok(found)
    }

    fn needs_bus(&self) -> bool {
        let needs_none = |driver: &Driver| *driver == Driver::Fake;
        self.mdev.is_enabled()
            || !self.specs.is_empty()
            || !self.nvme.is_empty()
            || !self.functions.is_empty()
            || !self.drivers.iter().all(needs_none)
    }

    /// The cards of `[devices] nvlink_islands` that this host does not have, one sentence each.
    pub fn absent_links(&self, sysfs: &dyn Sysfs) -> Vec<String> {
        let said = |card| format!("[devices] nvlink_islands: this host has no PCI function {card}");
        self.links.absent(sysfs).map(said).collect()
    }

    /// The options of types that have no effect on this host, one sentence each.
    pub fn ineffective_options(
        &self,
        sysfs: &dyn Sysfs,
        mig: &[MigCard],
    ) -> Result<Vec<String>, Error> {
        if !self.mdev.is_enabled() {
            return Ok(Vec::new());
        }
        let parents = parents(sysfs)?;
        let mut offered: Vec<(String, Vec<String>)> =
            parents.iter().map(|parent| (parent.address.clone(), parent.types(sysfs))).collect();
        for one in Bus::read(sysfs, &mut Vec::new())?.all() {
            if let Ok(Some(state)) = vgpu_state(sysfs, &one.address) {
                let creatable = state.creatable.into_iter().map(|offered| offered.id);
                let types: Vec<String> = creatable.chain(state.current).collect();
                offered.push((one.card().to_string(), types.clone()));
                offered.push((one.address.clone(), types));
            }
        }
        for card in mig {
            let types = card.types.iter().map(|one| one.id.clone());
            offered.push((card.address.clone(), types.collect()));
        }
        let mut ineffective_options = Vec::new();
        for mdev_type in self.mdev.types() {
            if !offered.iter().any(|(_, types)| types.iter().any(|one| one == mdev_type)) {
                ineffective_options.push(format!(
                    "[devices] enabled_mdev_types: no device of this host offers {mdev_type}"
                ));
            }
        }
        for address in self.mdev.addresses() {
            if !offered.iter().any(|(one, _)| one == address) {
                ineffective_options.push(format!(
                    "The PCI address {address} was invalid for getting the related mdev type: \
                     this host has no mdev-capable device there"
                ));
            }
        }
        Ok(ineffective_options)
    }
}

#[cfg(test)]
#[path = "discovery_tests.rs"]
mod tests;
