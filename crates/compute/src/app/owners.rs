//! The owner traits of providers in Placement: which traits are reported, and which request groups
//! require them.
//!
//! Upstream's Nova marks its own providers with `OWNER_NOVA` and Cyborg with `OWNER_CYBORG`, so
//! that neither uses the other's. Here both share one ledger: a flavor (`resources:VGPU`) and a
//! device profile may request the same card, so it has both traits. With an external Nova, only
//! profiles reach the devices, and they have `OWNER_CYBORG` only.

use kilonova_engine::Group;
use kilonova_placement::ledger::ProviderSpec;

const NOVA: &str = "OWNER_NOVA";
const CYBORG: &str = "OWNER_CYBORG";
/// Classes that only devices have. Custom classes may be an operator's own.
const CLASSES: [&str; 3] = ["FPGA", "PGPU", "VGPU"];

/// Adds the trait of a host's root provider.
pub(crate) fn mark_root(traits: &mut Vec<String>) {
    add(traits, NOVA);
}

/// Adds the traits of a device.
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

/// The trait of hosts that run servers.
pub(crate) fn of_root() -> String {
    NOVA.to_owned()
}

/// Restricts a group of a device profile to providers for profiles.
pub(crate) fn of_profile(group: &mut Group) {
    group.required.push(vec![CYBORG.to_owned()]);
}

/// True if the class always means devices. Such inventory on another provider, added manually, is
/// never offered, because the server would get no device.
pub(crate) fn only_devices_have(class: &str) -> bool {
    CLASSES.contains(&class)
}

/// Restricts a flavor's group for a device to providers for flavors. The unsuffixed group may span
/// providers, and the root's own trait would satisfy it.
pub(crate) fn of_flavor(group: &mut Group) {
    let for_device = |(class, _): &(String, i64)| only_devices_have(class);
    if !group.suffix.is_empty() && group.resources.iter().any(for_device) {
        group.required.push(vec![NOVA.to_owned()]);
    }
}

/// Restricts a group of an alias to reported devices for flavors: a server must get a device, not
/// units that somebody added manually.
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
