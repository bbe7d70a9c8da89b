//! The properties of an existing domain that its next definition keeps, whatever the options of the host and the firmware
//! installed there are by then.
//!
//! Nova keeps the machine type in the server's system metadata (`_configure_guest_by_virt_type` in
//! `nova/virt/libvirt/driver.py`), and copies the firmware from the existing domain (`_copy_guest_firmware_elements`). Here the
//! domain's own metadata records the machine type. A rebuild chooses both anew, as in Nova.

use std::path::Path;

use kilonova_hypervisor::Definition;
use kilonova_node_api::SecureBoot;
use roxmltree::{Document, Node};

use super::HostProfile;
use super::devices::Layout;
use super::element::Element;
use super::system::{available, family, is_secure, is_uefi, machine_type};

/// Namespace of the record.
const NAMESPACE: &str = "urn:kilonova:hardware:1";

/// The kept properties. Empty for the domain of a new guest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    /// The machine type, if neither the image nor the definition names one.
    pub machine_type: Option<String>,
    /// True if a guest with optional secure boot was given it, false if not.
    pub secure_boot: Option<bool>,
    /// The firmware that libvirt chose, if its files still exist.
    pub firmware: Option<KeptFirmware>,
}

/// The firmware of a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptFirmware {
    /// The `<loader>` and `<nvram>` elements, as libvirt wrote them.
    pub elements: Vec<String>,
    /// True if the firmware needs system management mode.
    pub smm: bool,
}

impl Kept {
    /// The properties of the first domain here of a guest. Another host may have chosen its machine type, which is kept if
    /// the emulator has it or one of its family. Of the domain there, nothing else is known: a guest whose disks come from
    /// that host (`fetched`) has no secure boot.
    pub(crate) fn of_new(host: &HostProfile, machine_type: Option<&str>, fetched: bool) -> Self {
        let known = &host.machine_types;
        let kept = machine_type.map(|chosen| available(host, chosen));
        let kept = kept.filter(|kept| known.is_empty() || known.contains(*kept));
        Self {
            machine_type: kept.map(str::to_owned),
            secure_boot: fetched.then_some(false),
            firmware: None,
        }
    }

    /// Reads what the next definition of a domain keeps. `exists` tells if a file of the firmware exists.
    pub(crate) fn of(
        host: &HostProfile,
        xml: &str,
        next: &Definition,
        layout: &Layout,
        exists: impl Fn(&Path) -> bool,
    ) -> Self {
        let (Ok(document), Ok(old)) = (Document::parse(xml), Definition::from_xml(xml)) else {
            return Self::default();
        };
        if old.config.boot.rebuilt != next.config.boot.rebuilt {
            return Self::default();
        }
        let domain = document.root_element();
        let record = child(domain, "metadata").and_then(|metadata| {
            metadata.children().find(|node| node.has_tag_name((NAMESPACE, "is")))
        });
        let of_record = |name| record.and_then(|record| record.attribute(name));
        let os = child(domain, "os");
        let running = os.and_then(|os| child(os, "type")?.attribute("machine"));
        // Domains of earlier versions have no record. Their type follows from libvirt's, unless an image named it.
        let unnamed =
            old.machine().machine_type.is_none() && old.config.machine.machine_type.is_none();
        let before = running.filter(|_| unnamed).map(|running| {
            let usual = machine_type(host, next, &next.config.machine, layout, None);
            if family(usual) == family(running) { usual } else { family(running) }
        });
        let secure_boot = is_uefi(&old.config.machine)
            .then(|| of_record("secure_boot") == Some("yes"))
            .filter(|_| old.config.machine.secure_boot != Some(SecureBoot::Required));
        let mut kept = Self {
            machine_type: of_record("machine_type")
                .or(before)
                .map(|recorded| available(host, recorded).to_owned()),
            secure_boot,
            firmware: None,
        };
        let (was, will) = (old.machine(), next.machine());
        let same_machine = running.is_some_and(|running| {
            let next = machine_type(host, next, will, layout, kept.machine_type.as_deref());
            family(running) == family(next)
        });
        if is_uefi(was) && is_uefi(will) && was.secure_boot == will.secure_boot && same_machine {
            kept.firmware = os.and_then(|os| firmware(xml, domain, os, exists));
        }
        kept
    }

    /// The record of a domain's machine type and of its secure boot, if the host chose them.
    pub(super) fn record(
        &self,
        host: &HostProfile,
        definition: &Definition,
        layout: &Layout,
    ) -> Option<String> {
        let machine = &definition.config.machine;
        let chosen = machine_type(host, definition, machine, layout, self.machine_type.as_deref());
        let record = Some(chosen).filter(|_| machine.machine_type.is_none());
        let optional = machine.secure_boot == Some(SecureBoot::Optional);
        let secure = (optional && is_secure(host, machine, chosen, self)).then_some("yes");
        (record.is_some() || secure.is_some()).then(|| {
            let element = Element::new("hardware:is")
                .with("xmlns:hardware", NAMESPACE)
                .with_some("machine_type", record)
                .with_some("secure_boot", secure);
            format!("    {element}")
        })
    }
}

/// The firmware in a domain's XML, if libvirt has chosen it and its files exist.
fn firmware(
    xml: &str,
    domain: Node<'_, '_>,
    os: Node<'_, '_>,
    exists: impl Fn(&Path) -> bool,
) -> Option<KeptFirmware> {
    let loader = child(os, "loader")?;
    let path = loader.text().map(str::trim).filter(|path| !path.is_empty())?;
    let nvram = child(os, "nvram");
    let template = nvram.and_then(|nvram| nvram.attribute("template"));
    if !exists(Path::new(path)) || !template.is_none_or(|path| exists(Path::new(path))) {
        return None;
    }
    let smm = child(domain, "features").and_then(|features| child(features, "smm"));
    let elements = [Some(loader), nvram].into_iter().flatten();
    Some(KeptFirmware {
        elements: elements.map(|node| format!("    {}\n", &xml[node.range()])).collect(),
        smm: smm.is_some_and(|smm| smm.attribute("state") != Some("off")),
    })
}

fn child<'a, 'b>(node: Node<'a, 'b>, name: &str) -> Option<Node<'a, 'b>> {
    node.children().find(|child| child.has_tag_name(name))
}

#[cfg(test)]
#[path = "kept_tests.rs"]
mod tests;
