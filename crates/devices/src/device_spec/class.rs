//! Names of resource classes and traits as entries may spell them.

use kilonova_ids::ResourceClass;

/// Standard classes that a PCI function may have.
const STANDARD_CLASSES: [&str; 7] =
    ["VGPU", "PGPU", "FPGA", "SRIOV_NET_VF", "PCI_DEVICE", "NIC_BANDWIDTH", "ACCELERATOR"];
/// Prefixes of standard traits.
const STANDARD_TRAITS: [&str; 5] = ["HW_", "COMPUTE_", "STORAGE_", "MISC_", "OWNER_"];
const LONGEST: usize = 255;

/// The text in upper case, with one `_` for each run of other characters.
fn letters(text: &str) -> String {
    let mut name = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => name.push(c.to_ascii_uppercase()),
            _ if name.ends_with('_') => {}
            _ => name.push('_'),
        }
    }
    name
}

/// `CUSTOM_` and the normalized text.
pub(crate) fn custom(text: &str) -> String {
    let name = letters(text);
    if name.starts_with("CUSTOM_") { name } else { format!("CUSTOM_{name}") }
}

fn bounded(name: String, given: &str) -> Result<String, String> {
    if name.len() > LONGEST {
        return Err(format!("{given:?} is longer than {LONGEST} characters"));
    }
    Ok(name)
}

/// The resource class that an entry means.
pub(crate) fn resource_class(given: &str) -> Result<ResourceClass, String> {
    if given.trim().is_empty() {
        return Err("resource_class is empty".to_owned());
    }
    let name = letters(given.trim());
    let known = STANDARD_CLASSES.contains(&name.as_str());
    let name = bounded(if known { name } else { custom(given.trim()) }, given)?;
    ResourceClass::parse(&name).map_err(|why| format!("{given:?}: {why}"))
}

/// The trait that an entry means.
pub(crate) fn trait_name(given: &str) -> Result<String, String> {
    let name = letters(given);
    let known = STANDARD_TRAITS.iter().any(|start| name.starts_with(start));
    bounded(if known { name } else { custom(given) }, given)
}
