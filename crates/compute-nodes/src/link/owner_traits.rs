//! The owner traits of the providers that a host reports.

use kilonova_compute_scheduler::owners::{CYBORG, NOVA};
use kilonova_placement::ledger::ProviderSpec;

/// Adds the owner trait of a host's root provider.
pub(super) fn mark_root(traits: &mut Vec<String>) {
    add(traits, NOVA);
}

/// Adds the owner traits of a device. With an external Nova, Cyborg is its only owner.
pub(super) fn mark(device: &mut ProviderSpec, external_nova: bool) {
    add(&mut device.traits, CYBORG);
    if external_nova {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn device(traits: &[&str]) -> ProviderSpec {
        ProviderSpec {
            id: kilonova_ids::ProviderId::new_v4(),
            name: "gpu1_pci_0000_84_00_0".into(),
            inventories: Vec::new(),
            initial_ratios: Vec::new(),
            traits: traits.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    #[test]
    fn devices_have_both_owners_unless_nova_is_external() {
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
