//! Attaches network interfaces to a running guest and detaches them.

use kilonova_hypervisor::Definition;
use roxmltree::Document;
use virt::domain::Domain;
use virt::error::Error as VirtError;
use virt_sys as sys;

use super::volumes::is_unplugging;
use crate::xml;

/// Attaches missing taps to a running guest, and detaches those that its definition no longer has.
/// A guest may take some time to release an interface. A tap that the guest is still releasing
/// counts as detached, and the next call checks it again.
pub(super) fn plug(domain: &Domain, definition: &Definition) -> Result<(), VirtError> {
    let running = domain.get_xml_desc(0)?;
    let there = taps(&running);
    for (tap, xml) in &there {
        if !definition.config.interfaces.iter().any(|one| one.tap() == *tap) {
            match domain.detach_device_flags(xml, sys::VIR_DOMAIN_AFFECT_LIVE) {
                Err(error) if !is_unplugging(&error) => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
    }
    for interface in &definition.config.interfaces {
        let tap = interface.tap();
        if there.iter().any(|(known, _)| *known == tap) {
            continue;
        }
        if let Some(xml) = xml::plug(definition, interface) {
            domain.attach_device_flags(&xml, sys::VIR_DOMAIN_AFFECT_LIVE)?;
        }
    }
    Ok(())
}

/// The agent's taps in a running domain, each with its XML.
fn taps(xml: &str) -> Vec<(String, String)> {
    let Ok(document) = Document::parse(xml) else { return Vec::new() };
    document
        .descendants()
        .filter(|node| node.has_tag_name("interface"))
        .filter(|node| matches!(node.attribute("type"), Some("bridge" | "direct")))
        .filter_map(|node| {
            let target = node.children().find(|child| child.has_tag_name("target"))?;
            Some((target.attribute("dev")?.to_owned(), xml[node.range()].to_owned()))
        })
        .collect()
}
