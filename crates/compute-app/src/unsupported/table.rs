//! The refused extra specs and image properties, each with the reason.
//!
//! Names and values follow Nova's extra spec reference and its `ImageMetaProps`. A key is
//! listed if upstream's libvirt driver acts on it and Kilonova does not.

use crate::boot::machine::truth;

/// The refused values of a key.
#[derive(Debug, Clone, Copy)]
enum Refused {
    /// All.
    All,
    /// True values.
    Yes,
    /// All except these, which describe every guest.
    AllBut(&'static [&'static str]),
    /// Numbers above 0, and values that are not numbers.
    Some,
}

impl Refused {
    fn has(self, value: &str) -> bool {
        match self {
            Self::All => true,
            Self::Yes => truth(value),
            Self::AllBut(fine) => !fine.contains(&value.trim().to_ascii_lowercase().as_str()),
            Self::Some => value.trim().parse::<i64>().map_or(true, |number| number > 0),
        }
    }
}

type Row = (&'static str, Refused, &'static str);

const VOLUMES: &str = "only a new server gets the volumes that an image names";
const ENCRYPTED: &str = "the memory of guests is not encrypted";
const PMEM: &str = "guests have no persistent memory";
const TPM: &str = "guests have no TPM";
const IOMMU: &str = "guests have no IOMMU";
const SOUND: &str = "guests have no sound device";
const USB: &str = "the model of a guest's USB controller cannot be chosen";
const RING: &str = "guests have no packed rings";
const PMU: &str = "a guest's performance monitoring unit cannot be switched";
const SERIAL: &str = "guests have one serial port";
const LIMITS: &str = "the consumption of guests is not limited or weighed";
const ADDRESSES: &str = "the physical address bits of guests cannot be chosen";
const DISKS: &str = "the disks of guests are not encrypted";

/// Suffixes of keys that extra specs (`hw:…`) and image properties (`hw_…`) share.
const SHARED: &[Row] = &[
    ("mem_encryption", Refused::Yes, ENCRYPTED),
    ("mem_encryption_model", Refused::All, ENCRYPTED),
    ("pmu", Refused::All, PMU),
    ("serial_port_count", Refused::AllBut(&["1"]), SERIAL),
    ("tpm_model", Refused::All, TPM),
    ("tpm_version", Refused::All, TPM),
    ("tpm_secret_security", Refused::All, TPM),
    ("viommu_model", Refused::All, IOMMU),
    ("sound_model", Refused::All, SOUND),
    ("usb_model", Refused::AllBut(&["none"]), USB),
    ("virtio_packed_ring", Refused::Yes, RING),
    ("maxphysaddr_mode", Refused::All, ADDRESSES),
    ("maxphysaddr_bits", Refused::All, ADDRESSES),
    ("ephemeral_encryption", Refused::Yes, DISKS),
];

/// Suffixes after `hw:` only.
const OF_FLAVORS: &[Row] = &[("pmem", Refused::All, PMEM)];

/// Complete names of image properties.
const OF_IMAGES: &[Row] = &[
    (
        "hw_emulation_architecture",
        Refused::All,
        "guests have the architecture of their host's processors",
    ),
    ("hw_firmware_stateless", Refused::Yes, "the firmware of guests keeps its variables"),
    ("hw_redirected_usb_ports", Refused::Some, "guests have no USB ports for a remote console"),
    ("hw_time_hpet", Refused::Yes, "guests have no HPET"),
    ("hw_vm_mode", Refused::AllBut(&["hvm"]), "guests are fully virtualized"),
    ("vm_mode", Refused::AllBut(&["hvm"]), "guests are fully virtualized"),
    (
        "os_require_quiesce",
        Refused::Yes,
        "the file systems of a guest are not frozen while its disk is copied",
    ),
    ("img_block_device_mapping", Refused::AllBut(&["", "[]"]), VOLUMES),
    ("block_device_mapping", Refused::AllBut(&["", "[]"]), VOLUMES),
];

/// The `quota:` keys that Nova's libvirt driver reads; the others are for other hypervisors.
const QUOTAS: &[&str] = &[
    "cpu_shares",
    "cpu_period",
    "cpu_quota",
    "disk_read_bytes_sec",
    "disk_read_iops_sec",
    "disk_write_bytes_sec",
    "disk_write_iops_sec",
    "disk_total_bytes_sec",
    "disk_total_iops_sec",
    "vif_inbound_average",
    "vif_inbound_peak",
    "vif_inbound_burst",
    "vif_outbound_average",
    "vif_outbound_peak",
    "vif_outbound_burst",
];

fn find(rows: &[Row], key: &str, value: &str) -> Option<&'static str> {
    let (_, refused, why) = rows.iter().find(|(name, ..)| *name == key)?;
    refused.has(value).then_some(*why)
}

/// The reason why an extra spec is refused; `None` if it is supported or has no effect upstream
/// either.
pub(super) fn of_spec(key: &str, value: &str) -> Option<&'static str> {
    let (namespace, name) = key.split_once(':')?;
    match namespace {
        "hw" => find(SHARED, name, value).or_else(|| find(OF_FLAVORS, name, value)),
        "hw_rng" if matches!(name, "rate_bytes" | "rate_period") && Refused::Some.has(value) => {
            Some("a guest's random bytes are not limited")
        }
        "quota" if QUOTAS.contains(&name) => Some(LIMITS),
        _ => None,
    }
}

/// The reason why an image property is refused.
pub(super) fn of_property(key: &str, value: &str) -> Option<&'static str> {
    let of_both = key.strip_prefix("hw_").and_then(|name| find(SHARED, name, value));
    of_both.or_else(|| find(OF_IMAGES, key, value))
}
