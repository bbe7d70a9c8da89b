//! Finds the accelerators of a host in its sysfs, and creates mediated devices.
//!
//! Owns the reading of sysfs and the meaning of the `[devices]` and `[mdev_*]` options. It must
//! never choose a device for a guest: the controller does. All access goes through [`Sysfs`], so
//! a real and a simulated host run the same code.

mod bitstream;
mod bus;
mod cells;
mod cleanup;
mod collector;
mod config;
mod device_spec;
mod discovery;
mod disk;
mod driver;
mod error;
mod health;
mod kernel_object;
mod kinds;
mod mdev;
mod mig;
mod models;
mod near;
mod nvidia_smi;
mod passthrough;
mod pci;
mod survey;
mod sysfs;
#[cfg(test)]
mod testing;
mod traits;
mod type_names;
mod vgpu;

pub use bitstream::{BITSTREAM_HEAD, Bitstream, hex_id};
pub use cells::{CellOptions, FoundCells, has_threads};
pub use cleanup::Cleanup;
pub use collector::{DeviceProblem, Found};
pub use config::{InvalidOption, MdevConfig, MdevGroup, MdevOptions};
pub use device_spec::{DeviceSpec, MatchOf, NvmeSpec, PciAlias};
pub use discovery::{Discovery, MigScan, ScanContext};
pub use disk::Disk;
pub use error::Error;
pub use health::{HealthOptions, Watch, XidPolicy};
pub use kernel_object::KernelObject;
pub use kinds::Driver;
pub use kinds::fpga::region_of;
pub use kinds::nic::NicOptions;
pub use mdev::{Mdev, Parent, create, find, mdevs, parents, remove};
pub use mig::{InstanceProfile, InstanceType, MigCard, MigDriver, NoMig, mig_driver, refused};
pub use models::{ModelNames, Models};
pub use near::Links;
pub use nvidia_smi::NvidiaSmi;
pub use passthrough::{Fake, Function};
pub use pci::{PciAddress, PciFunction, device_name};
pub use survey::{Survey, UsableCard, UsableType, survey};
pub use sysfs::{Directory, Sysfs};
pub use type_names::TypeNames;
pub use vgpu::{Vgpu, VgpuState, VgpuType, clear_type, set_type, vgpu_state};
