//! What accelerators a host has, read from its sysfs, and the making of mediated devices.
//!
//! Owns the reading of sysfs and the meaning of the `[devices]` and `[mdev_*]` options. Must never
//! choose which device a guest gets: the control plane does. Everything goes through [`Sysfs`], so a
//! real host and a simulated one run the same code.

mod bitstream;
mod bus;
mod cleanup;
mod config;
mod device_spec;
mod discovery;
mod disk;
mod driver;
mod error;
mod harvest;
mod health;
mod kinds;
mod made;
mod mdev;
mod passthrough;
mod pci;
mod survey;
mod sysfs;
#[cfg(test)]
mod testing;
mod traits;
mod vgpu;

pub use bitstream::{BITSTREAM_HEAD, Bitstream, hex_id};
pub use cleanup::Cleanup;
pub use config::{MdevConfig, MdevGroup, MdevOptions, WrongOption};
pub use device_spec::{DeviceSpec, MatchOf, NvmeSpec, PciAlias};
pub use discovery::Discovery;
pub use disk::Disk;
pub use driver::Driver;
pub use error::Error;
pub use harvest::{Found, Trouble};
pub use health::{HealthOptions, Watch, XidPolicy};
pub use kinds::fpga::region_of;
pub use kinds::nic::NicOptions;
pub use made::Made;
pub use mdev::{Mdev, Parent, create, find, mdevs, parents, remove};
pub use passthrough::{Fake, Function};
pub use pci::{PciAddress, PciFunction, device_name};
pub use survey::{Capable, CapableType, Survey, survey};
pub use sysfs::{Directory, Sysfs};
pub use vgpu::{Vgpu, VgpuState, VgpuType, clear_type, set_type, vgpu_state};
