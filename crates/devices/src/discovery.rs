//! From sysfs and options to the devices that a node registers.
//!
//! Owns the order in which options and drivers get at the functions of a host: what an option names
//! comes before what a driver finds. Only a host whose sysfs cannot be listed at all is an error;
//! what is wrong with a device is said of that device.

use kilonova_node_api::Device;
use uuid::Uuid;

use crate::bus::Bus;
use crate::harvest::{Found, Harvest};
use crate::kinds::{self, Host};
use crate::{
    Cleanup, DeviceSpec, Driver, Error, Fake, Function, HealthOptions, MdevConfig, NicOptions,
    NvmeSpec, Sysfs, Watch, parents, vgpu_state,
};

/// What to look for on a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Discovery {
    /// Which mdev parents and vGPU functions become what.
    pub mdev: MdevConfig,
    /// Which PCI functions guests may be given.
    pub specs: Vec<DeviceSpec>,
    /// Which NVMe functions guests may be given.
    pub nvme: Vec<NvmeSpec>,
    /// Which drivers look for their kinds.
    pub drivers: Vec<Driver>,
    /// What network cards are connected to.
    pub nics: NicOptions,
    /// Functions that are passed through whole.
    pub functions: Vec<Function>,
    /// Cards that exist only on paper.
    pub fakes: Vec<Fake>,
    /// How the health of devices is followed.
    pub health: HealthOptions,
    /// What is cleaned, and how, when a guest has given it up.
    pub cleanup: Cleanup,
}

impl Discovery {
    /// All devices of the host, by address. `is_ours` tells the mediated devices that were made for
    /// guests of this control plane from those that somebody else made.
    pub fn devices(
        &self,
        sysfs: &dyn Sysfs,
        is_ours: &dyn Fn(Uuid) -> bool,
    ) -> Result<Vec<Device>, Error> {
        self.look(sysfs, is_ours).map(|found| found.devices)
    }

    /// All devices of the host, and what is wrong with them now.
    pub fn look(&self, sysfs: &dyn Sysfs, is_ours: &dyn Fn(Uuid) -> bool) -> Result<Found, Error> {
        self.look_on(sysfs, is_ours, None)
    }

    /// All devices of the host, and what is wrong with them or has happened to them.
    pub fn look_on(
        &self,
        sysfs: &dyn Sysfs,
        is_ours: &dyn Fn(Uuid) -> bool,
        watch: Option<&Watch>,
    ) -> Result<Found, Error> {
        let mut harvest = Harvest::default();
        let bus = if self.looks_at_the_bus() {
            Bus::read(sysfs, &mut harvest.troubles)?
        } else {
            Bus::default()
        };
        let host = Host { sysfs, bus: &bus };
        if self.mdev.is_enabled() {
            kinds::mdev::find(&self.mdev, host, is_ours, &mut harvest)?;
            kinds::vgpu::find(&self.mdev, host, &mut harvest);
        }
        kinds::allowed::find(&self.specs, host, &mut harvest);
        kinds::nvme::listed(&self.nvme, host, &mut harvest);
        for function in &self.functions {
            function.find(host, &mut harvest);
        }
        for driver in &self.drivers {
            self.drive(*driver, host, &mut harvest);
        }
        for fake in &self.fakes {
            fake.find(&mut harvest);
        }
        let mut found = harvest.found(sysfs, &bus, watch);
        self.cleanup.mark(&mut found.devices);
        Ok(found)
    }

    fn looks_at_the_bus(&self) -> bool {
        let needs_none = |driver: &Driver| *driver == Driver::Fake;
        self.mdev.is_enabled()
            || !self.specs.is_empty()
            || !self.nvme.is_empty()
            || !self.functions.is_empty()
            || !self.drivers.iter().all(needs_none)
    }

    fn drive(&self, driver: Driver, host: Host<'_>, harvest: &mut Harvest) {
        match driver {
            Driver::Fake => Fake::upstream().find(harvest),
            Driver::NvidiaGpu => kinds::gpu::find(host, harvest),
            Driver::IntelFpga => kinds::fpga::intel(host, harvest),
            Driver::XilinxFpga => kinds::fpga::xilinx(host, harvest),
            Driver::InspurFpga => kinds::fpga::inspur(host, harvest),
            Driver::IntelQat => kinds::qat::find(host, harvest),
            Driver::IntelNic => kinds::nic::find(&self.nics, host, harvest),
            Driver::InspurNvme => kinds::nvme::find(host, harvest),
        }
    }

    /// What of the options has no effect on this host, in sentences for its operator.
    pub fn doubts(&self, sysfs: &dyn Sysfs) -> Result<Vec<String>, Error> {
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
        let mut doubts = Vec::new();
        for mdev_type in self.mdev.types() {
            if !offered.iter().any(|(_, types)| types.iter().any(|one| one == mdev_type)) {
                doubts.push(format!(
                    "[devices] enabled_mdev_types: no device of this host offers {mdev_type}"
                ));
            }
        }
        for address in self.mdev.addresses() {
            if !offered.iter().any(|(one, _)| one == address) {
                doubts.push(format!(
                    "The PCI address {address} was invalid for getting the related mdev type: it is \
                     no mdev-capable device of this host"
                ));
            }
        }
        Ok(doubts)
    }
}

#[cfg(test)]
#[path = "discovery_tests.rs"]
mod tests;
