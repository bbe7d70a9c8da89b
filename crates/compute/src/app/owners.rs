//! Who gives a provider's resources to servers, as traits in Placement: what is reported with them, and
//! which groups of a query ask for them.
//!
//! Upstream's Nova marks what is its own with `OWNER_NOVA` and Cyborg with `OWNER_CYBORG`, so that neither
//! takes the other's. Here both roads end in one ledger: a flavor (`resources:VGPU`) and a device
//! profile may ask for the same card, so it carries both. Where the servers are those of a Nova of
//! somebody else, only profiles reach the devices, and they are Cyborg's alone.

use kilonova_engine::Group;
use kilonova_placement::ledger::ProviderSpec;

const NOVA: &str = "OWNER_NOVA";
const CYBORG: &str = "OWNER_CYBORG";
/// What only devices have. Custom classes may be an operator's own, made by hand.
const CLASSES: [&str; 3] = ["FPGA", "PGPU", "VGPU"];

/// Marks the root of a host.
pub(crate) fn mark_root(traits: &mut Vec<String>) {
    add(traits, NOVA);
}

/// Marks a device.
pub(crate) fn mark(device: &mut ProviderSpec, nova_elsewhere: bool) {
    add(&mut device.traits, CYBORG);
    if nova_elsewhere {
        device.traits.retain(|name| name != NOVA);
    } else {
        add(&mut device.traits, NOVA);
    }
}

fn add(traits: &mut Vec<String>, name: &str) {
    if !traits.iter().any(|known| known == name) {
        traits.push(name.to_owned());
    }
}

/// Hosts that take servers.
pub(crate) fn of_root() -> String {
    NOVA.to_owned()
}

/// A group of a device profile takes what profiles may take.
pub(crate) fn of_profile(group: &mut Group) {
    group.required.push(vec![CYBORG.to_owned()]);
}

/// Whether units of the class are always devices: what somebody put on another provider by hand is given
/// to no server, which would be without one.
pub(crate) fn only_devices_have(class: &str) -> bool {
    CLASSES.contains(&class)
}

/// A group of a flavor that is for a device takes what flavors may take. The group without suffix
/// may be spread over providers, and the root's own trait would do for all of it.
pub(crate) fn of_flavor(group: &mut Group) {
    let for_device = |(class, _): &(String, i64)| only_devices_have(class);
    if !group.suffix.is_empty() && group.resources.iter().any(for_device) {
        group.required.push(vec![NOVA.to_owned()]);
    }
}

/// A group of an alias takes what a host reported, and that flavors may take: a server must get a device
/// and not the units that somebody wrote down.
pub(crate) fn of_alias(group: &mut Group) {
    group.required.extend([NOVA, CYBORG].map(|owner| vec![owner.to_owned()]));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(traits: &[&str]) -> ProviderSpec {
        ProviderSpec {
            id: kilonova_ids::ProviderId::new_v4(),
            name: "gpu1_pci_0000_84_00_0".into(),
            inventories: Vec::new(),
            traits: traits.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    #[test]
    fn both_roads_lead_to_a_device_unless_nova_is_elsewhere() {
        for (given, here, elsewhere) in [
            (&[NOVA, "CUSTOM_NVIDIA_35"][..], 3, vec!["CUSTOM_NVIDIA_35", CYBORG]),
            (&[CYBORG, "CUSTOM_FPGA_INTEL"][..], 3, vec![CYBORG, "CUSTOM_FPGA_INTEL"]),
            (&["CUSTOM_FAKE_DEVICE"][..], 3, vec!["CUSTOM_FAKE_DEVICE", CYBORG]),
        ] {
            let mut ours = device(given);
            mark(&mut ours, false);
            assert_eq!(ours.traits.len(), here, "{:?}", ours.traits);
            assert!([NOVA, CYBORG].iter().all(|owner| ours.traits.iter().any(|t| t == owner)));
            let mut theirs = device(given);
            mark(&mut theirs, true);
            assert_eq!(theirs.traits, elsewhere);
        }
    }
}
