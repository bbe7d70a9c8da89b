//! `binding:profile`, which contains keys of the port's owner and of the compute service.

use serde_json::{Map, Value};

/// A profile. Its owner's keys are kept unchanged.
pub type Profile = Map<String, Value>;

/// The keys that the compute service sets for the device and the claim of a server.
const OURS: [&str; 9] = [
    "allocation",
    "arq_uuid",
    "card_serial_number",
    "device_mac_address",
    "pci_slot",
    "pci_vendor_info",
    "pf_mac_address",
    "physical_network",
    "vf_num",
];

/// The profile of a port that its server releases, without the compute service's keys.
#[must_use]
pub fn released(profile: &Profile) -> Profile {
    let mut left = profile.clone();
    left.retain(|key, _| !OURS.contains(&key.as_str()));
    left
}
