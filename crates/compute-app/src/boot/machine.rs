//! The guest configuration that image properties and extra specs define, and the validation of both.
//!
//! Names, values and messages are Nova's. [`check`] refuses invalid values before a server exists,
//! so that no host receives an unknown value; [`of`] ignores values that it cannot parse.

use std::collections::BTreeMap;
use std::str::FromStr;

use kilonova_compute_db::servers::{FlavorOf, Spec};
use kilonova_ids::{ImageId, parse_uuid_like};
use kilonova_node_api::{Bus, Firmware, Machine, Medium, Rescue, RescueDevice, SecureBoot};
use kilonova_wire::Refusal;

use super::topology;

type Properties = BTreeMap<String, String>;

const VIF_MODELS: &[&str] = &[
    "virtio",
    "ne2k_pci",
    "pcnet",
    "rtl8139",
    "e1000",
    "e1000e",
    "igb",
    "lan9118",
    "spapr-vlan",
    "vmxnet3",
];
/// Legacy names from other hypervisors.
const OLD_VIF_MODELS: &[(&str, &str)] = &[
    ("virtuale1000", "e1000"),
    ("virtuale1000e", "e1000e"),
    ("virtualpcnet32", "pcnet"),
    ("virtualvmxnet3", "vmxnet3"),
];
const VIDEO_MODELS: &[&str] = &["cirrus", "qxl", "vga", "vmvga", "virtio", "none", "bochs"];
const SCSI_MODELS: &[&str] =
    &["virtio-scsi", "buslogic", "ibmvscsi", "lsilogic", "lsisas1068", "lsisas1078", "vmpvscsi"];
const OLD_SCSI_MODELS: &[(&str, &str)] =
    &[("lsilogicsas", "lsisas1068"), ("paravirtual", "vmpvscsi")];
const WATCHDOG: &[&str] = &["none", "pause", "poweroff", "reset", "disabled"];
/// Values that Nova knows but no host here supports: buses and cards of other hypervisors.
const ELSEWHERE: &[(&str, &[&str])] = &[
    ("bus", &["xen", "lxc", "uml"]),
    ("vif", &["netfront", "sriov", "vmxnet", "virtualsriovethernetcard", "virtualvmxnet"]),
    ("video", &["xen", "gop"]),
];

/// The guest configuration of a server with this flavor.
pub fn of(spec: &Spec, flavor: &FlavorOf) -> Machine {
    let asked = spec.config_drive;
    let mut machine = Reader::new(&spec.image_properties, flavor).machine();
    machine.config_drive |= asked;
    machine
}

/// The guest configuration of a server whose disk has booted before, on a host that has no domain of it. Optional
/// secure boot is off, because the system on the disk may have no signed boot loader.
pub fn of_started(spec: &Spec, flavor: &FlavorOf) -> Machine {
    let machine = of(spec, flavor);
    let secure_boot = machine.secure_boot.filter(|one| *one != SecureBoot::Optional);
    Machine { secure_boot, ..machine }
}

/// The rescue configuration implied by these image properties.
pub(crate) fn rescue(spec: &Spec, image: Option<ImageId>, properties: &Properties) -> Rescue {
    let mut reader = Reader::new(properties, &spec.flavor);
    let bus = reader.bus("hw_rescue_bus");
    let medium = reader.one("hw_rescue_device", "Medium", Medium::parse);
    let device = (bus.is_some() || medium.is_some())
        .then(|| RescueDevice { medium: medium.unwrap_or(Medium::Disk), bus });
    // A rescue device is attached after the guest's own disks, so the guest keeps its configuration.
    let machine = if device.is_some() {
        of(spec, &spec.flavor)
    } else {
        Machine { config_drive: of(spec, &spec.flavor).config_drive, ..reader.machine() }
    };
    Rescue { image, device, machine }
}

/// True if the image requires a config drive.
pub fn needs_config_drive(properties: &Properties) -> bool {
    properties.get("img_config_drive").is_some_and(|policy| policy == "mandatory")
}

/// Checks the properties of an image against the flavor.
///
/// # Errors
/// 400 with Nova's message.
pub fn check(properties: &Properties, flavor: &FlavorOf) -> Result<(), Refusal> {
    let mut reader = Reader::new(properties, flavor);
    let machine = reader.machine();
    reader.bus("hw_rescue_bus");
    reader.one("hw_rescue_device", "Medium", Medium::parse);
    reader.word("img_config_drive", "", &["optional", "mandatory"], &[]);
    if let Some(why) = reader.wrong {
        return Err(Refusal::bad_request(format!("Invalid image metadata. Error: {why}")));
    }
    if let Some(asked) = machine.video_ram_mb {
        let most = flavor.extra_specs.get("hw_video:ram_max_mb");
        let most = most.and_then(|most| most.parse::<i64>().ok()).unwrap_or(0);
        if asked > most {
            return Err(Refusal::bad_request(format!(
                "The requested amount of video memory {asked} is higher than the maximum allowed \
                 by flavor {most}."
            )));
        }
    }
    topology::choose(properties, flavor).map(|_| ()).map_err(Refusal::bad_request)
}

/// Checks hardware that a server gets with a new image: at its creation, and at a rebuild with another image. Existing servers
/// keep hardware that was accepted once.
///
/// # Errors
/// 400 with Nova's message, if it has one.
pub fn check_new(
    properties: &Properties,
    flavor: &FlavorOf,
    config_drive: bool,
) -> Result<(), Refusal> {
    one_secure_boot(properties, flavor)?;
    let machine = Reader::new(properties, flavor).machine();
    has_its_buses(&machine, config_drive || machine.config_drive)
}

/// Refuses an image whose secure boot is not the flavor's, as upstream (`_get_unique_flavor_image_meta` in
/// `nova/virt/hardware.py`). Upstream names the image, which is not known here for an existing server.
fn one_secure_boot(properties: &Properties, flavor: &FlavorOf) -> Result<(), Refusal> {
    let ours = flavor.extra_specs.get("os:secure_boot");
    let image = properties.get("os_secure_boot").map(|policy| policy.to_lowercase());
    match (ours, image) {
        (Some(ours), Some(image)) if *ours != image => Err(Refusal::bad_request(format!(
            "Flavor {} has os:secure_boot extra spec explicitly set to {ours}, conflicting with the \
             image, which has os_secure_boot explicitly set to {image}.",
            flavor.name
        ))),
        _ => Ok(()),
    }
}

/// Refuses an IDE disk of a machine type without that bus, which libvirt would refuse on each host. The bus of CD-ROMs counts
/// only for a server that has one on every host: other servers have one only on hosts with `force_config_drive`.
fn has_its_buses(machine: &Machine, has_cdrom: bool) -> Result<(), Refusal> {
    let Some(of) = machine.machine_type.as_deref().filter(|of| of.contains("q35")) else {
        return Ok(());
    };
    let of = of.escape_debug();
    let cdrom_bus = machine.cdrom_bus.filter(|_| has_cdrom);
    for (property, bus) in [("hw_disk_bus", machine.disk_bus), ("hw_cdrom_bus", cdrom_bus)] {
        if bus == Some(Bus::Ide) {
            return Err(Refusal::bad_request(format!(
                "Invalid image metadata. Error: hw_machine_type={of} has no IDE bus for {property}"
            )));
        }
    }
    Ok(())
}

/// Reads properties, and keeps the first error.
struct Reader<'a> {
    properties: &'a Properties,
    flavor: &'a FlavorOf,
    wrong: Option<String>,
}

impl<'a> Reader<'a> {
    fn new(properties: &'a Properties, flavor: &'a FlavorOf) -> Self {
        Self { properties, flavor, wrong: None }
    }

    fn machine(&mut self) -> Machine {
        let flavor = |key: &str| self.flavor.extra_specs.get(key).map(String::as_str);
        let flavor_says = |key: &str| flavor(key).is_some_and(truth);
        let rng = flavor("hw_rng:allowed").is_none_or(truth);
        let boot_menu = flavor_says("hw:boot_menu");
        let hidden = flavor_says("hw:hide_hypervisor_id") || flavor_says("hide_hypervisor_id");
        let multiqueue = flavor_says("hw:vif_multiqueue_enabled");
        let watchdog = flavor("hw:watchdog_action").map(str::to_owned);
        let secure = flavor("os:secure_boot") == Some("required");
        self.word("hw_rng_model", "", &["virtio"], &[]);
        for part in topology::PROPERTIES {
            self.number(part);
        }
        Machine {
            machine_type: self.text("hw_machine_type"),
            firmware: self.one("hw_firmware_type", "", Firmware::parse),
            secure_boot: self.secure_boot(secure),
            disk_bus: self.bus("hw_disk_bus"),
            cdrom_bus: self.bus("hw_cdrom_bus"),
            scsi_model: self.word("hw_scsi_model", "", SCSI_MODELS, OLD_SCSI_MODELS),
            vif_model: self.word("hw_vif_model", "vif", VIF_MODELS, OLD_VIF_MODELS),
            vif_multiqueue: multiqueue || self.says("hw_vif_multiqueue_enabled") == Some(true),
            video_model: self.word("hw_video_model", "video", VIDEO_MODELS, &[]),
            video_ram_mb: self.number("hw_video_ram").filter(|ram| *ram > 0),
            rng,
            watchdog: self
                .word("hw_watchdog_action", "", WATCHDOG, &[])
                .or(watchdog)
                .filter(|action| action != "disabled"),
            guest_agent: self.says("hw_qemu_guest_agent") == Some(true),
            boot_menu: self.says("hw_boot_menu").unwrap_or(boot_menu),
            hide_hypervisor: hidden || self.says("img_hide_hypervisor_id") == Some(true),
            topology: topology::choose(self.properties, self.flavor).ok().flatten(),
            os_type: self.word("os_type", "", &["linux", "windows"], &[]),
            kernel: kernel(self.properties, "kernel_id"),
            ramdisk: kernel(self.properties, "ramdisk_id"),
            command_line: self.text("os_command_line"),
            config_drive: needs_config_drive(self.properties),
        }
    }

    fn text(&self, key: &str) -> Option<String> {
        self.properties.get(key).filter(|text| !text.is_empty()).cloned()
    }

    fn says(&self, key: &str) -> Option<bool> {
        self.properties.get(key).map(|value| truth(value))
    }

    fn blame(&mut self, why: String) {
        self.wrong.get_or_insert(why);
    }

    fn secure_boot(&mut self, required: bool) -> Option<SecureBoot> {
        let known = &["required", "disabled", "optional"];
        let text = self.word("os_secure_boot", "", known, &[]);
        if required { Some(SecureBoot::Required) } else { SecureBoot::parse(&text?) }
    }

    fn bus(&mut self, key: &str) -> Option<Bus> {
        self.one(key, "bus", Bus::parse)
    }

    fn number(&mut self, key: &str) -> Option<i64> {
        let text = self.properties.get(key)?;
        let number = text.trim().parse().ok();
        if number.is_none() {
            let text = text.escape_debug();
            self.blame(format!("invalid literal for int() with base 10: '{text}'"));
        }
        number
    }

    /// Parses a named value; `kind` selects the names in [`ELSEWHERE`].
    fn one<T>(&mut self, key: &str, kind: &str, parse: fn(&str) -> Option<T>) -> Option<T> {
        let word = self.properties.get(key)?;
        let found = parse(word);
        if found.is_none() {
            self.unknown(word, kind);
        }
        found
    }

    /// Parses one of the known names, or a legacy name for one; ignores case.
    fn word(
        &mut self,
        key: &str,
        kind: &str,
        known: &[&str],
        old: &[(&str, &str)],
    ) -> Option<String> {
        let value = self.properties.get(key)?;
        let word = value.to_lowercase();
        let word = old.iter().find(|(old, _)| *old == word).map_or(&*word, |(_, new)| new);
        if known.contains(&word) {
            return Some(word.to_owned());
        }
        self.unknown(value, kind);
        None
    }

    fn unknown(&mut self, word: &str, kind: &str) {
        let elsewhere = ELSEWHERE.iter().any(|(of, words)| *of == kind && words.contains(&word));
        let word = word.escape_debug();
        self.blame(if elsewhere {
            format!("Requested hardware '{word}' is not supported by the 'kvm' virt driver")
        } else {
            format!("Field value {word} is invalid")
        });
    }
}

/// The image that a property names, if any.
pub(crate) fn kernel(properties: &Properties, key: &str) -> Option<ImageId> {
    properties.get(key).and_then(|id| parse_uuid_like(id))
}

/// True for the words that Nova treats as true.
pub(crate) fn truth(text: &str) -> bool {
    let text = text.trim().to_lowercase();
    ["1", "t", "true", "on", "y", "yes"].contains(&text.as_str())
}

/// Parses the number in an extra spec or a property.
pub(super) fn number_of<T: FromStr>(text: Option<&String>) -> Option<T> {
    text.and_then(|text| text.trim().parse().ok())
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
