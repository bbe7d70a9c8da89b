//! The owner traits of providers in Placement: which request groups require them.
//!
//! Upstream's Nova marks its own providers with `OWNER_NOVA` and Cyborg with `OWNER_CYBORG`, so
//! that neither uses the other's. Here both share one ledger: a flavor (`resources:VGPU`) and a
//! device profile may request the same card, so it has both traits. With an external Nova, only
//! profiles reach the devices, and they have `OWNER_CYBORG` only.

use kilonova_engine::Group;
use kilonova_ids::ResourceClass;

/// The trait of providers that flavors reach.
pub const NOVA: &str = "OWNER_NOVA";
/// The trait of providers that device profiles reach.
pub const CYBORG: &str = "OWNER_CYBORG";
/// Resource classes that only devices have. Custom classes are not listed, because they may be an
/// operator's own.
const CLASSES: [&str; 3] = ["FPGA", "PGPU", "VGPU"];

/// The trait of hosts that run servers.
pub fn of_root() -> String {
    NOVA.to_owned()
}

/// Restricts a group of a device profile to providers for profiles.
pub fn of_profile(group: &mut Group) {
    group.required.push(vec![CYBORG.to_owned()]);
}

/// True if the class always means devices. An operator may add such inventory to a provider that is
/// not a device; it is never offered, because the server would get no device.
pub fn only_devices_have(class: &ResourceClass) -> bool {
    CLASSES.contains(&class.as_str())
}

/// Restricts a flavor's group for a device to providers for flavors. The unsuffixed group is exempt,
/// because it may span providers, so that the root's own trait would satisfy it.
pub fn of_flavor(group: &mut Group) {
    let for_device = |(class, _): &(ResourceClass, i64)| only_devices_have(class);
    if !group.suffix.is_empty() && group.resources.iter().any(for_device) {
        group.required.push(vec![NOVA.to_owned()]);
    }
}

/// Restricts a group of an alias to reported devices for flavors: a server must get a device, not
/// units that an operator added manually.
pub fn of_alias(group: &mut Group) {
    group.required.extend([NOVA, CYBORG].map(|owner| vec![owner.to_owned()]));
}
