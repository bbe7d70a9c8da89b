//! Parses `[pci]` and `[nvme] device_spec`, `[agent] enabled_drivers` and `[x710_static]`: the
//! devices offered in addition to mediated devices; the options of the health watch; and `[pci]
//! alias`, by which flavors request devices.
//!
//! `kilonova_devices` owns their meaning.

use std::path::PathBuf;

use kilonova_devices::{
    DeviceSpec, Discovery, Driver, HealthOptions, NicOptions, NvmeSpec, PciAlias, XidPolicy,
};

use super::File;
use crate::Failure;

const PCI: &str = "pci";
const SPEC: &str = "device_spec";
const SPEC_OLD: &str = "passthrough_whitelist";
const ALIAS: &str = "alias";
const NICS: &str = "x710_static";
const NVME: &str = "nvme";
const DEVICES: &str = "devices";
const LOG: &str = "kernel_log";
const XIDS: &str = "xid_policy";

/// Group and option.
pub(super) const KNOWN: [(&str, &str); 10] = [
    (PCI, SPEC),
    (PCI, SPEC_OLD),
    (PCI, ALIAS),
    ("agent", "enabled_drivers"),
    (NVME, SPEC),
    (DEVICES, LOG),
    (DEVICES, XIDS),
    ("nic_devices", "enabled_nic_types"),
    (NICS, "physical_device_mappings"),
    (NICS, "function_device_mappings"),
];

/// Parses everything except mediated devices.
///
/// # Errors
/// A message with file, line, group and option.
pub fn read(file: &File) -> Result<Discovery, Failure> {
    let mut specs = Vec::new();
    for option in [SPEC, SPEC_OLD] {
        for (line, text) in file.values(PCI, option) {
            let entries = DeviceSpec::parse(&text)
                .map_err(|error| file.wrong_at(line, PCI, option, &error.to_string()))?;
            specs.extend(entries);
        }
    }
    let mut nvme = Vec::new();
    for (line, text) in file.values(NVME, SPEC) {
        let entries = NvmeSpec::parse(&text)
            .map_err(|error| file.wrong_at(line, NVME, SPEC, &error.to_string()))?;
        nvme.extend(entries);
    }
    let xid_policy = XidPolicy::parse(file.get(DEVICES, XIDS).unwrap_or_default())
        .map_err(|why| file.wrong(DEVICES, XIDS, &why))?;
    let health =
        HealthOptions { kernel_log: file.get(DEVICES, LOG).map(PathBuf::from), xid_policy };
    let drivers = Driver::parse(file.get("agent", "enabled_drivers").unwrap_or_default())
        .map_err(|error| file.wrong("agent", "enabled_drivers", &error.to_string()))?;
    let types = file.get("nic_devices", "enabled_nic_types").unwrap_or_default();
    if let Some(other) = types.split(',').map(str::trim).find(|one| !one.is_empty() && *one != NICS)
    {
        let why = format!("unknown type of network card: {other}; known types: {NICS}");
        return Err(file.wrong("nic_devices", "enabled_nic_types", &why));
    }
    let mapping = |option| file.get(NICS, option).unwrap_or_default();
    let read = |option| {
        NicOptions::new(mapping(option), "")
            .map_err(|error| file.wrong(NICS, option, &error.to_string()))
    };
    read("physical_device_mappings")?;
    read("function_device_mappings")?;
    let nics =
        NicOptions::new(mapping("physical_device_mappings"), mapping("function_device_mappings"))
            .map_err(|error| file.wrong(NICS, "physical_device_mappings", &error.to_string()))?;
    let cleanup = super::devices::cleanup(file)?;
    let links = super::devices::links(file)?;
    Ok(Discovery { specs, nvme, drivers, nics, health, cleanup, links, ..Discovery::default() })
}

/// Parses `[pci] alias`. The controller uses it; a host only validates it.
///
/// # Errors
/// A message with file, line, group and option. A name may occur only once: several entries would
/// mean alternatives, which a Placement query cannot express.
pub fn aliases(file: &File) -> Result<Vec<PciAlias>, Failure> {
    let mut aliases: Vec<PciAlias> = Vec::new();
    for (line, text) in file.values(PCI, ALIAS) {
        let wrong = |why: &str| file.wrong_at(line, PCI, ALIAS, why);
        for alias in PciAlias::parse(&text).map_err(|error| wrong(&error.to_string()))? {
            if aliases.iter().any(|other| other.name == alias.name) {
                return Err(wrong(&format!(
                    "alias {:?} is defined twice, but alternatives are not supported; give all of \
                     the devices the same resource_class in device_spec, and use it in one alias",
                    alias.name
                )));
            }
            aliases.push(alias);
        }
    }
    Ok(aliases)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(text: &str) -> Result<Discovery, String> {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let path = folder.path().join("k.conf");
        std::fs::write(&path, text).expect("the file is written");
        let shown = format!("{}:", path.display());
        let read = File::read(&path, &[]).and_then(|file| read(&file));
        read.map_err(|failure| failure.to_string().replace(&shown, "k.conf:"))
    }

    #[test]
    fn entries_may_be_repeated_and_span_lines() {
        let text = "[pci]\ndevice_spec = {\"vendor_id\": \"8086\",\n    \"product_id\": \"154c\"}\n\
                    device_spec = [{\"vendor_id\": \"10de\"}, {\"vendor_id\": \"10ee\"}]\n\
                    [agent]\nenabled_drivers = intel_qat_driver, fake_driver\n";
        let found = sources(text).expect("the configuration is valid");
        let specs: Vec<String> = found.specs.iter().map(ToString::to_string).collect();
        assert_eq!(specs.len(), 3, "{specs:?}");
        assert!(specs[0].contains("154c"), "{specs:?}");
        assert_eq!(found.drivers, [Driver::IntelQat, Driver::Fake]);
        assert_eq!(sources("").expect("the result is valid"), Discovery::default());
    }

    #[test]
    fn an_alias_is_unique() {
        let read = |text: &str| {
            let folder = tempfile::tempdir().expect("a temporary directory is created");
            let path = folder.path().join("k.conf");
            std::fs::write(&path, text).expect("the file is written");
            let shown = format!("{}:", path.display());
            let read = File::read(&path, &[]).and_then(|file| aliases(&file));
            read.map_err(|failure| failure.to_string().replace(&shown, "k.conf:"))
        };
        let text = "[pci]\nalias = {\"name\": \"a\",\n  \"resource_class\": \"A\"}\n\
                    alias = [{\"name\": \"b\", \"resource_class\": \"B\"}]\n";
        let names: Vec<_> = read(text)
            .expect("the configuration is valid")
            .into_iter()
            .map(|one| one.name)
            .collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(read("[pci]\ndevice_spec = {}\n").expect("the value is absent"), []);
        for (text, part) in [
            (
                "[pci]\nalias = {\"name\": \"a\", \"resource_class\": \"A\"}\n\
                 alias = {\"name\": \"a\", \"resource_class\": \"B\"}\n",
                "k.conf:3: [pci] alias: alias \"a\" is defined twice",
            ),
            (
                "[pci]\n\nalias = {\"name\": \"a\"}\n",
                "k.conf:3: [pci] alias: Invalid PCI alias definition: alias \"a\": it names no device",
            ),
        ] {
            let message = read(text).expect_err(text);
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn refusals_name_the_line() {
        for (text, part) in [
            (
                "[pci]\ndevice_spec = {\"vendor_id\": \"10de\"}\ndevice_spec = {\"vendor\": \"1\"}\n",
                "k.conf:3: [pci] device_spec: Invalid [pci]device_spec config: unknown key vendor",
            ),
            ("[pci]\n\ndevice_spec = {\n  \"vendor_id\": 7}\n", "k.conf:3: [pci] device_spec:"),
            (
                "[agent]\nenabled_drivers = nvidia\n",
                "k.conf:2: [agent] enabled_drivers: unknown driver nvidia",
            ),
            ("[nic_devices]\nenabled_nic_types = cx5\n", "k.conf:2: [nic_devices]"),
            (
                "[x710_static]\nphysical_device_mappings = eth2\n",
                "k.conf:2: [x710_static] physical_device_mappings:",
            ),
            ("[pci]\ndevice_specs = {}\n", "this option is not known"),
            (
                "[nvme]\ndevice_spec = {\"vendor_id\": \"144d\",\n \"clear_action\": \"burn\"}\n",
                "k.conf:2: [nvme] device_spec: Invalid [nvme]device_spec config: clear_action",
            ),
            ("[devices]\nxid_policy = 79:no\n", "k.conf:2: [devices] xid_policy: \"79:no\":"),
        ] {
            let message = sources(text).expect_err(text);
            assert!(message.contains(part), "{message}");
        }
    }
}
