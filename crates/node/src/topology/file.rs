//! The syntax of a topology file.

use std::collections::BTreeMap;

use kilonova_devices::MdevGroup;
use kilonova_ids::ResourceClass;
use serde::Deserialize;

use super::forms;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    pub card: BTreeMap<String, Card>,
    pub host: Vec<HostEntry>,
}

/// A card type.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Card {
    #[serde(default, deserialize_with = "forms::hex")]
    pub vendor: String,
    #[serde(default, deserialize_with = "forms::hex")]
    pub product: String,
    /// Product id of its virtual functions, if different.
    #[serde(default, deserialize_with = "forms::some_hex")]
    pub vf_product: Option<String>,
    #[serde(default = "display_controller", deserialize_with = "forms::hex")]
    pub class: String,
    #[serde(default)]
    pub driver: String,
    /// True if a type in use excludes the others, as with NVIDIA.
    #[serde(default)]
    pub exclusive_types: bool,
    #[serde(default)]
    pub types: Vec<CardType>,
    /// True if virtual functions get their type from the vendor's VFIO driver, without mediated
    /// devices.
    #[serde(default)]
    pub vfio_types: bool,
    /// The geometry of a GPU in MIG mode, `a100-40gb`. Its types need GPU instances.
    pub mig: Option<String>,
    /// Further files below the directories of the card and of each virtual function.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    #[serde(default)]
    pub vf_files: BTreeMap<String, String>,
    /// For cards that are passed through as a whole.
    pub resource_class: Option<ResourceClass>,
    #[serde(default)]
    pub traits: Vec<String>,
}

fn display_controller() -> String {
    "030000".to_owned()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CardType {
    pub id: String,
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub description: String,
    #[serde(default = "vfio_pci")]
    pub device_api: String,
    pub available_instances: u32,
    /// On a GPU in MIG mode: the profile of the GPU instance, `1g.5gb`.
    pub mig_profile: Option<String>,
}

fn vfio_pci() -> String {
    "vfio-pci".to_owned()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostEntry {
    pub name: String,
    pub count: Option<u32>,
    pub address: Option<String>,
    /// Identifies the host even after a rename.
    pub machine_id: Option<String>,
    pub vcpus: i64,
    pub memory_mb: i64,
    pub disk_gb: i64,
    pub cpu_allocation_ratio: Option<f64>,
    pub ram_allocation_ratio: Option<f64>,
    pub disk_allocation_ratio: Option<f64>,
    #[serde(default = "reserved")]
    pub reserved_host_memory_mb: i64,
    #[serde(default)]
    pub reserved_host_cpus: i64,
    #[serde(default)]
    pub reserved_host_disk_mb: i64,
    pub traits: Option<Vec<String>>,
    #[serde(default = "builds")]
    pub max_concurrent_builds: usize,
    #[serde(default)]
    pub numa: Vec<CellEntry>,
    pub numa_in_placement: Option<bool>,
    #[serde(default)]
    pub card: Vec<CardEntry>,
    #[serde(default)]
    pub fake: Vec<FakeEntry>,
    pub devices: Option<DevicesOptions>,
    pub mdev: Option<BTreeMap<String, MdevGroup>>,
    #[serde(default)]
    pub pci: PciOptions,
    #[serde(default)]
    pub nvme: PciOptions,
    #[serde(default)]
    pub agent: AgentOptions,
    #[serde(default)]
    pub x710_static: NicMappings,
    #[serde(default)]
    pub times_ms: BTreeMap<String, u64>,
    #[serde(default)]
    pub fail: Vec<FailEntry>,
}

fn reserved() -> i64 {
    512
}

fn builds() -> usize {
    10
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct DevicesOptions {
    pub enabled_mdev_types: Vec<String>,
    pub mdev_retyping: bool,
    pub mig_instances: bool,
    /// As in the configuration file: one entry for each island, with its addresses.
    #[serde(deserialize_with = "forms::islands")]
    pub nvlink_islands: Vec<String>,
    /// The reaction to Xid messages: `94:quarantine, 13:report`.
    #[serde(deserialize_with = "forms::xids")]
    pub xid_policy: String,
    /// As in the configuration file: resource class, colon, command.
    pub cleanup_command: Vec<String>,
    /// Seconds.
    pub cleanup_timeout: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PciOptions {
    /// As in nova.conf: JSON in a string.
    #[serde(deserialize_with = "forms::specs")]
    pub device_spec: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct AgentOptions {
    pub enabled_drivers: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct NicMappings {
    pub physical_device_mappings: String,
    pub function_device_mappings: String,
}

/// A NUMA cell.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CellEntry {
    /// CPUs that guests share, as `0-3,8`.
    #[serde(default, deserialize_with = "forms::cpus")]
    pub shared: String,
    /// CPUs that are each dedicated to one vCPU.
    #[serde(default, deserialize_with = "forms::cpus")]
    pub dedicated: String,
    /// Threads per core; the CPUs of a core have consecutive numbers.
    #[serde(default = "one_thread")]
    pub threads: u32,
    pub socket: Option<u32>,
    pub memory_mb: u64,
    /// Large pages: their number by size in KiB.
    #[serde(default, deserialize_with = "forms::pages")]
    pub pages: BTreeMap<String, u64>,
    /// Reserved pages, by size in KiB.
    #[serde(default, deserialize_with = "forms::pages")]
    pub reserved_pages: BTreeMap<String, u64>,
    /// The distances to all cells; default 10 to itself and 20 to others.
    #[serde(default, deserialize_with = "forms::distances")]
    pub distances: Vec<u32>,
}

fn one_thread() -> u32 {
    1
}

/// Cards of one type in a host.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CardEntry {
    pub card: String,
    #[serde(deserialize_with = "forms::addresses")]
    pub addresses: Vec<String>,
    #[serde(default = "no_node")]
    pub numa_node: i64,
    /// Address of the upstream port of the PCIe switch above them.
    pub switch: Option<String>,
    #[serde(default)]
    pub vfs: u32,
}

fn no_node() -> i64 {
    -1
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FakeEntry {
    #[serde(default = "fake_name")]
    pub name: String,
    #[serde(default = "fake_address")]
    pub address: String,
    #[serde(default = "fake_class")]
    pub resource_class: ResourceClass,
    #[serde(default = "fake_traits")]
    pub traits: Vec<String>,
    #[serde(default = "fake_count")]
    pub count: u32,
}

fn fake_name() -> String {
    "FakeDevice".to_owned()
}

fn fake_address() -> String {
    "0000:0c:00.0".to_owned()
}

fn fake_class() -> ResourceClass {
    ResourceClass::verbatim("FPGA")
}

fn fake_traits() -> Vec<String> {
    vec!["CUSTOM_FAKE_DEVICE".to_owned()]
}

fn fake_count() -> u32 {
    16
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FailEntry {
    pub step: String,
    pub server_name: Option<String>,
    pub times: Option<u32>,
    pub guest: Option<String>,
}
