//! Traits derived from a device's properties.

use std::collections::BTreeMap;

use crate::PciFunction;
use crate::device_spec::custom;
use crate::kinds::OWNER_NOVA;

/// On every function named by `[pci] device_spec`, as Nova reports it, for every driver.
pub(crate) const MANAGED: &str = "COMPUTE_MANAGED_PCI_DEVICE";
/// On a function whose entry declares it live-migratable.
pub(crate) const LIVE_MIGRATABLE: &str = "HW_PCI_LIVE_MIGRATABLE";

/// Upstream's `device_type`. Upstream stores it outside of Placement; here it is a trait, as only
/// Placement decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PciType {
    /// `type-PCI`: without SR-IOV.
    Plain,
    /// `type-PF`: may have virtual functions.
    Physical,
    /// `type-VF`: a virtual function.
    Virtual,
}

impl PciType {
    pub(crate) fn trait_name(self) -> &'static str {
        match self {
            Self::Plain => "CUSTOM_PCI_TYPE_PCI",
            Self::Physical => "CUSTOM_PCI_TYPE_PF",
            Self::Virtual => "CUSTOM_PCI_TYPE_VF",
        }
    }
}

/// The trait of a function's vendor and product, independent of its class.
pub(crate) fn of_ids(vendor_id: &str, product_id: &str) -> String {
    custom(&format!("PCI_{vendor_id}_{product_id}"))
}

/// Traits and facts of a vGPU or mdev type: the type's own trait (`CUSTOM_NVIDIA_35`), for NVIDIA
/// Cyborg's trait (`CUSTOM_NVIDIA_13BD_M10_0B`: product id and second word of the type's name), and
/// for a MIG-backed type the slice (`CUSTOM_NVIDIA_MIG_1G_5GB`).
pub(crate) fn of_type(
    type_id: &str,
    type_name: &str,
    function: Option<&PciFunction>,
) -> (Vec<String>, BTreeMap<String, String>) {
    let mut traits = vec![OWNER_NOVA.to_owned(), custom(type_id)];
    let mut facts = BTreeMap::new();
    if let Some(function) = function.filter(|function| function.vendor_id == "10de") {
        if let Some(word) = type_name.split_whitespace().nth(1) {
            traits.push(custom(&format!("nvidia_{}_{word}", function.product_id)));
        }
        if let Some((slices, gigabytes)) = mig_slice(type_name) {
            traits.push(custom(&format!("nvidia_mig_{slices}g_{gigabytes}gb")));
            facts.insert("mig_profile".to_owned(), format!("{slices}g.{gigabytes}gb"));
        }
    }
    (traits, facts)
}

/// Slices and gigabytes of a MIG-backed type: `NVIDIA A100-1-5C` is one slice with 5 GB.
/// Time-sliced types have one number less (`NVIDIA A40-2Q`).
fn mig_slice(type_name: &str) -> Option<(u32, u32)> {
    let word = type_name.split_whitespace().last()?;
    let mut parts = word.rsplit('-');
    let (size, slices, _board) = (parts.next()?, parts.next()?, parts.next()?);
    let digits = size.trim_end_matches(|c: char| c.is_ascii_uppercase());
    if digits.len() == size.len() {
        return None;
    }
    Some((slices.parse().ok()?, digits.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::mig_slice;

    #[test]
    fn mig_slices_are_parsed_from_type_names() {
        for (name, slice) in [
            ("NVIDIA A100-1-5C", Some((1, 5))),
            ("GRID A100-3-20C", Some((3, 20))),
            ("NVIDIA RTX Pro 6000 Blackwell DC-1-24Q", Some((1, 24))),
            ("NVIDIA A40-2Q", None),
            ("GRID M10-0B", None),
            ("NVIDIA A100-40C", None),
            ("", None),
        ] {
            assert_eq!(mig_slice(name), slice, "{name}");
        }
    }
}
