//! Machine type, firmware, kernel, features and clock.

use kilonova_node_api::{Firmware, Machine, SecureBoot};

use super::HostProfile;
use super::devices::Layout;
use super::element::Element;

/// The machine type: the image's, else the host's, else the default of the architecture.
pub(crate) fn machine_type<'a>(host: &'a HostProfile, machine: &'a Machine) -> &'a str {
    let usual = if host.arch == "x86_64" { "q35" } else { "virt" };
    machine.machine_type.as_deref().or(host.config.machine_type.as_deref()).unwrap_or(usual)
}

/// True if devices are on PCI Express.
pub(super) fn is_pcie(machine_type: &str) -> bool {
    machine_type.contains("q35") || machine_type.starts_with("virt")
}

fn is_secure(machine: &Machine) -> bool {
    machine.secure_boot == Some(SecureBoot::Required)
}

pub(super) fn os(
    host: &HostProfile,
    machine: &Machine,
    machine_type: &str,
    layout: &Layout,
) -> Element {
    let hvm = Element::text("type", "hvm").with("arch", &host.arch).with("machine", machine_type);
    let mut os = Element::new("os");
    if machine.firmware == Some(Firmware::Uefi) || is_secure(machine) {
        os = os.with("firmware", "efi");
    }
    os.push(hvm);
    if is_secure(machine) {
        let feature = |name| Element::new("feature").with("enabled", "yes").with("name", name);
        os.push(
            Element::new("firmware").children([feature("secure-boot"), feature("enrolled-keys")]),
        );
        os.push(Element::new("loader").with("secure", "yes"));
    }
    if let Some(kernel) = &layout.kernel {
        os.push(Element::text("kernel", kernel.display()));
        if let Some(ramdisk) = &layout.ramdisk {
            os.push(Element::text("initrd", ramdisk.display()));
        }
        let usual = "root=/dev/vda console=tty0 console=ttyS0";
        os.push(Element::text("cmdline", machine.command_line.as_deref().unwrap_or(usual)));
    }
    if machine.boot_menu {
        os.push(Element::new("bootmenu").with("enable", "yes"));
    }
    os
}

pub(super) fn features(host: &HostProfile, machine: &Machine) -> Element {
    let on = |name: &'static str| Element::new(name).with("state", "on");
    let mut features = Element::new("features").child(Element::new("acpi"));
    if host.arch == "x86_64" {
        features.push(Element::new("apic"));
    }
    if is_secure(machine) {
        features.push(on("smm"));
    }
    if machine.hide_hypervisor {
        features.push(Element::new("kvm").child(on("hidden")));
    }
    if is_windows(machine) {
        features.push(
            Element::new("hyperv")
                .child(on("relaxed"))
                .child(on("vapic"))
                .child(on("spinlocks").with("retries", 8191)),
        );
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

fn is_windows(machine: &Machine) -> bool {
    machine.os_type.as_deref() == Some("windows")
}
