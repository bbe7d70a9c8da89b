//! Machine type, firmware, kernel, system information, features and clock.

use std::collections::BTreeSet;

use kilonova_hypervisor::Definition;
use kilonova_node_api::{Bus, Firmware, Machine, SecureBoot};

use super::HostProfile;
use super::devices::Layout;
use super::disks;
use super::element::Element;
use super::kept::Kept;
use crate::config::VirtType;

/// The release of Nova whose behaviour the guests see.
const NOVA_VERSION: &str = "34.0.0";

/// The machine type: the image's, else the one that the guest has had, else the host's, else `pc` for a guest with an IDE
/// disk, else the default of the architecture. The type of an existing guest never follows from its disks, because the
/// guest has run with it.
pub(super) fn machine_type<'a>(
    host: &'a HostProfile,
    definition: &'a Definition,
    machine: &'a Machine,
    layout: &Layout,
    kept: Option<&'a str>,
) -> &'a str {
    let named = machine.machine_type.as_deref().or(kept).or(host.config.machine_type.as_deref());
    named.unwrap_or_else(|| {
        let needs_ide = host.arch == "x86_64" && has_ide(host, definition, machine, layout);
        if needs_ide { "pc" } else { default_machine_type(host) }
    })
}

/// The machine type of most guests of the host.
pub(crate) fn usual_machine_type(host: &HostProfile) -> &str {
    host.config.machine_type.as_deref().unwrap_or(default_machine_type(host))
}

fn default_machine_type(host: &HostProfile) -> &'static str {
    if host.arch == "x86_64" { "q35" } else { "virt" }
}

/// True if a disk that the guest has is on an IDE bus. The bus of a CD-ROM counts only for a guest with one, and the bus of
/// disks only for a guest with disks that are not volumes.
fn has_ide(
    host: &HostProfile,
    definition: &Definition,
    machine: &Machine,
    layout: &Layout,
) -> bool {
    let usual = default_machine_type(host);
    let mut buses = layout.disks.iter().map(|disk| disks::bus(host, machine, usual, disk));
    buses.any(|bus| bus == Bus::Ide)
        || definition.config.volumes.iter().any(|volume| volume.bus == Bus::Ide)
}

/// A recorded machine type, or the closest type that the emulator has: newer versions of QEMU drop the oldest types, and no
/// definition with a dropped type succeeds.
pub(super) fn available<'a>(host: &'a HostProfile, recorded: &'a str) -> &'a str {
    let known = &host.machine_types;
    let has = |machine_type: &str| known.is_empty() || known.contains(machine_type);
    if has(recorded) {
        return recorded;
    }
    let of_host = host.config.machine_type.as_deref();
    let same = of_host.filter(|of_host| family(of_host) == family(recorded) && has(of_host));
    same.unwrap_or(family(recorded))
}

/// The machine types in libvirt's capabilities, with their aliases.
pub(crate) fn machine_types(capabilities: &str, arch: &str) -> BTreeSet<String> {
    let Ok(document) = roxmltree::Document::parse(capabilities) else { return BTreeSet::new() };
    let ours = document
        .descendants()
        .filter(|node| node.has_tag_name("arch") && node.attribute("name") == Some(arch));
    ours.flat_map(|arch| arch.descendants())
        .filter(|node| node.has_tag_name("machine"))
        .flat_map(|machine| [machine.text(), machine.attribute("canonical")])
        .flatten()
        .map(|name| name.trim().to_owned())
        .collect()
}

/// The name that stands for all versions of a machine type: `q35` for `pc-q35-8.2`.
pub(super) fn family(machine_type: &str) -> &str {
    match machine_type {
        q35 if q35.contains("q35") => "q35",
        pc if pc == "pc" || pc.starts_with("pc-") => "pc",
        virt if virt.starts_with("virt-") => "virt",
        other => other,
    }
}

/// True if devices are on PCI Express.
pub(super) fn is_pcie(machine_type: &str) -> bool {
    machine_type.contains("q35") || machine_type.starts_with("virt")
}

/// True if the guest starts with UEFI.
pub(super) fn is_uefi(machine: &Machine) -> bool {
    machine.firmware == Some(Firmware::Uefi) || machine.secure_boot == Some(SecureBoot::Required)
}

/// True if the guest has secure boot. Where it is optional, a new guest has it if the host can give it, as in Nova
/// (`_check_secure_boot_support` in `nova/virt/libvirt/driver.py`), and an existing one keeps what it has. A guest whose disks come
/// from another host has none, because the system on them may have no signed boot loader.
pub(super) fn is_secure(
    host: &HostProfile,
    machine: &Machine,
    machine_type: &str,
    kept: &Kept,
) -> bool {
    match machine.secure_boot {
        Some(SecureBoot::Required) => true,
        Some(SecureBoot::Optional) => {
            let can = is_uefi(machine)
                && host.secure_boot
                && (host.arch != "x86_64" || machine_type.contains("q35"));
            can && kept.secure_boot.unwrap_or(true)
        }
        None => false,
    }
}

/// The system information that the guest reads from its SMBIOS tables, as in Nova (`_get_guest_config_sysinfo` in
/// `nova/virt/libvirt/driver.py`). cloud-init recognizes OpenStack by the product.
pub(super) fn sysinfo(host: &HostProfile, definition: &Definition) -> Option<Element> {
    let entry = |name: &str, value: &str| Element::text("entry", value).with("name", name);
    let server = definition.server.to_string();
    let system = Element::new("system").children([
        entry("manufacturer", "OpenStack Foundation"),
        entry("product", "OpenStack Nova"),
        entry("version", NOVA_VERSION),
        entry("serial", &server),
        entry("uuid", &server),
        entry("family", "Virtual Machine"),
    ]);
    has_smbios(host).then(|| Element::new("sysinfo").with("type", "smbios").child(system))
}

fn has_smbios(host: &HostProfile) -> bool {
    host.arch == "x86_64"
}

/// The `<os>` element. `root` is the name of the disk with the root file system.
pub(super) fn os(
    host: &HostProfile,
    machine: &Machine,
    machine_type: &str,
    layout: &Layout,
    root: &str,
    kept: &Kept,
) -> Element {
    let hvm = Element::text("type", "hvm").with("arch", &host.arch).with("machine", machine_type);
    let mut os = Element::new("os");
    if let Some(firmware) = &kept.firmware {
        os.push(hvm);
        os = firmware.elements.iter().cloned().fold(os, Element::raw);
    } else {
        let secure = is_secure(host, machine, machine_type, kept);
        if is_uefi(machine) {
            os = os.with("firmware", "efi");
        }
        os.push(hvm);
        if secure {
            let feature = |name| Element::new("feature").with("enabled", "yes").with("name", name);
            os.push(
                Element::new("firmware")
                    .children([feature("secure-boot"), feature("enrolled-keys")]),
            );
            os.push(Element::new("loader").with("secure", "yes"));
        }
    }
    if let Some(kernel) = &layout.kernel {
        os.push(Element::text("kernel", kernel.display()));
        if let Some(ramdisk) = &layout.ramdisk {
            os.push(Element::text("initrd", ramdisk.display()));
        }
        let command_line = machine.command_line.clone();
        let command_line = command_line.unwrap_or_else(|| usual_command_line(host, root));
        os.push(Element::text("cmdline", command_line));
    }
    if has_smbios(host) {
        os.push(Element::new("smbios").with("mode", "sysinfo"));
    }
    if machine.boot_menu {
        os.push(Element::new("bootmenu").with("enable", "yes"));
    }
    os
}

/// The command line of a kernel whose image names none, as in Nova (`_set_guest_for_inst_kernel` in
/// `nova/virt/libvirt/driver.py`).
fn usual_command_line(host: &HostProfile, root: &str) -> String {
    let emulated = match host.config.virt_type {
        VirtType::Kvm => "",
        VirtType::Qemu => " no_timer_check",
    };
    format!("root=/dev/{root} console=tty0 console=ttyS0 console=hvc0{emulated}")
}

/// The features, as in Nova (`_set_features` in `nova/virt/libvirt/driver.py`).
pub(super) fn features(
    host: &HostProfile,
    machine: &Machine,
    machine_type: &str,
    kept: &Kept,
) -> Element {
    let on = |name: &'static str| Element::new(name).with("state", "on");
    let mut features = Element::new("features").child(Element::new("acpi"));
    if host.arch == "x86_64" {
        features.push(Element::new("apic"));
    }
    let needs_smm = match &kept.firmware {
        Some(firmware) => firmware.smm,
        None => is_secure(host, machine, machine_type, kept),
    };
    if needs_smm {
        features.push(on("smm"));
    }
    if machine.hide_hypervisor {
        features.push(Element::new("kvm").child(on("hidden")));
    }
    if is_windows(machine) {
        let mut hyperv = Element::new("hyperv")
            .child(on("relaxed"))
            .child(on("vapic"))
            .child(on("spinlocks").with("retries", 8191));
        if machine.hide_hypervisor {
            hyperv.push(on("vendor_id").with("value", "1234567890ab"));
        }
        let others = ["vpindex", "runtime", "synic", "reset", "frequencies", "tlbflush", "ipi"];
        features.push(hyperv.children(others.map(on)));
    }
    if matches!(host.arch.as_str(), "x86_64" | "aarch64") {
        features.push(Element::new("vmcoreinfo"));
    }
    features
}

pub(super) fn clock(host: &HostProfile, machine: &Machine) -> Element {
    let timer = |name: &'static str| Element::new("timer").with("name", name);
    let offset = if is_windows(machine) { "localtime" } else { "utc" };
    let mut clock = Element::new("clock").with("offset", offset);
    if host.arch == "x86_64" {
        clock.push(timer("pit").with("tickpolicy", "delay"));
        clock.push(timer("rtc").with("tickpolicy", "catchup"));
        clock.push(timer("hpet").with("present", "no"));
    }
    if is_windows(machine) {
        clock.push(timer("hypervclock").with("present", "yes"));
    }
    clock
}

/// True if libvirt's domain capabilities have a firmware with secure boot, as Nova reads them
/// (`LibvirtConfigDomainCapsOS` in `nova/virt/libvirt/config.py`).
pub(crate) fn has_secure_boot(capabilities: &str) -> bool {
    let Ok(document) = roxmltree::Document::parse(capabilities) else { return false };
    let named = |node: &roxmltree::Node<'_, '_>, tag: &str, name: &str| {
        node.has_tag_name(tag) && node.attribute("name") == Some(name)
    };
    let loader = document
        .descendants()
        .find(|node| node.has_tag_name("loader") && node.attribute("supported") == Some("yes"));
    loader
        .into_iter()
        .flat_map(|loader| loader.children())
        .filter(|node| named(node, "enum", "secure"))
        .flat_map(|secure| secure.children())
        .any(|value| value.has_tag_name("value") && value.text() == Some("yes"))
}

fn is_windows(machine: &Machine) -> bool {
    machine.os_type.as_deref() == Some("windows")
}
