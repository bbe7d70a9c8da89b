//! Checks that the configured devices are on this host.

use kilonova_node::devices::{
    Directory, Discovery, Links, MdevConfig, MigScan, NvidiaSmi, PciFunction, ScanContext, Sysfs,
    mig_driver, parents,
};
use kilonova_node_api::{Device, HandleSlot};

use super::Report;
use crate::settings::Settings;

const AREA: &str = "devices";
/// Drivers of GPUs that release a device only when nothing on the host uses it.
const HOLDING: [&str; 4] = ["nvidia", "nouveau", "amdgpu", "radeon"];

pub(super) fn check(settings: &Settings, report: &mut Report) {
    let sysfs = Directory(settings.sysfs.clone());
    let mdev = match MdevConfig::new(&settings.mdev, &sysfs) {
        Ok(mdev) => mdev,
        Err(error) => {
            return report.wrong(AREA, error.to_string(), offered(&sysfs));
        }
    };
    let links = match settings.sources.links.clone().resolved(&NvidiaSmi::default()) {
        Ok(links) => links,
        Err(error) => {
            let remedy = "the agent registers the host only after it has read them; run `nvidia-smi topo -m` as the \
                          agent's user, or list the islands in [devices] nvlink_islands";
            report.wrong(AREA, error.to_string(), remedy);
            Links::default()
        }
    };
    let discovery = Discovery { mdev, links, ..settings.sources.clone() };
    for doubt in discovery.absent_links(&sysfs) {
        report.wrong(AREA, doubt, "`kilonova discover` lists the devices of this host");
    }
    let mig = match mig_driver(&settings.mdev).cards() {
        Ok(cards) => cards,
        Err(error) => {
            let remedy = "run the command above as the agent's user; the agent registers the host only after it has \
                          read which cards are in MIG mode";
            return report.wrong(AREA, error.to_string(), remedy);
        }
    };
    match discovery.ineffective_options(&sysfs, &mig) {
        Ok(doubts) if doubts.is_empty() => {}
        Ok(doubts) => {
            for doubt in doubts {
                report.wrong(AREA, doubt, offered(&sysfs));
            }
        }
        Err(error) => report.wrong(AREA, error.to_string(), "see `kilonova discover`"),
    }
    let mig = Some(MigScan { cards: &mig, is_ours: &|_| false });
    let context = ScanContext { mig, ..ScanContext::default() };
    let found = match discovery.scan_with(&sysfs, &|_| false, context) {
        Ok(found) => found,
        Err(error) => {
            return report.wrong(
                AREA,
                format!("could not read them: {error}"),
                "check that sysfs is mounted and readable for the agent",
            );
        }
    };
    for problem in &found.problems {
        let what = format!("{}: {}", problem.address, problem.reason);
        let remedy = "it is not offered to guests; `kilonova discover` lists the devices";
        report.warn(AREA, what, remedy);
    }
    for (address, driver) in held(&sysfs, &found.devices) {
        report.warn(
            AREA,
            format!("{address} is offered for passthrough, but bound to this host's driver {driver}"),
            format!(
                "the start of a guest fails or hangs while this host uses the device: bind it to vfio-pci, for example with \
                 `driverctl set-override {address} vfio-pci`"
            ),
        );
    }
    let slots: usize = found
        .devices
        .iter()
        .flat_map(|device| &device.deployables)
        .map(|one| one.slots.len())
        .sum();
    match found.devices.len() {
        0 => report.warn(
            AREA,
            "none are offered to guests",
            "list the devices with `kilonova discover`, and configure them in [devices], [pci] or [agent]",
        ),
        many => report.ok(AREA, format!("{many} offered, with {slots} deployables")),
    }
}

/// The functions for passthrough that are bound to one of these drivers, each with its driver.
fn held(sysfs: &dyn Sysfs, devices: &[Device]) -> Vec<(String, String)> {
    let slots = devices.iter().flat_map(|device| &device.deployables).flat_map(|part| &part.slots);
    let driver_of = |slot: &HandleSlot| match slot {
        HandleSlot::Pci { address } => {
            let function = PciFunction::read(sysfs, address).ok()??;
            let holds = HOLDING.contains(&function.driver.as_str());
            holds.then(|| (address.clone(), function.driver))
        }
        HandleSlot::Mdev { .. } | HandleSlot::Vfio { .. } | HandleSlot::TestPci { .. } => None,
    };
    slots.filter_map(driver_of).collect()
}

/// The mdev parents and types that exist.
fn offered(sysfs: &dyn Sysfs) -> String {
    let mut types = Vec::new();
    for parent in parents(sysfs).unwrap_or_default() {
        types.push(format!("{} ({})", parent.address, parent.types(sysfs).join(", ")));
    }
    if types.is_empty() {
        "this host has no mdev parent: check that the card's driver is loaded".to_owned()
    } else {
        format!("this host has {}", types.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::CommandLine;

    /// The report for a host with one mdev parent, a GPU bound to `nvidia`, and this configuration.
    fn report_for(devices: &str) -> Report {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let parent = folder.path().join("sys/devices/virtual/mtty/mtty");
        let kind = parent.join("mdev_supported_types/mtty-1");
        std::fs::create_dir_all(&kind).expect("the directory is created");
        std::fs::create_dir_all(folder.path().join("sys/bus/pci/devices"))
            .expect("the directory is created");
        for (name, text) in [
            ("available_instances", "24"),
            ("device_api", "vfio-pci"),
            ("name", "Single port serial"),
        ] {
            std::fs::write(kind.join(name), text).expect("the file is written");
        }
        let gpu = folder.path().join("sys/bus/pci/devices/0000:84:00.0");
        std::fs::create_dir_all(&gpu).expect("the directory is created");
        for (name, text) in [("vendor", "0x10de"), ("device", "0x2335"), ("class", "0x030200")] {
            std::fs::write(gpu.join(name), text).expect("the file is written");
        }
        let nvidia = folder.path().join("sys/bus/pci/drivers/nvidia");
        std::fs::create_dir_all(&nvidia).expect("the directory is created");
        std::os::unix::fs::symlink(nvidia, gpu.join("driver")).expect("the link is created");
        let class = folder.path().join("sys/class/mdev_bus");
        std::fs::create_dir_all(&class).expect("the directory is created");
        std::os::unix::fs::symlink("../../devices/virtual/mtty/mtty", class.join("mtty"))
            .expect("the link is created");
        let config = folder.path().join("agent.conf");
        let sysfs = folder.path().join("sys");
        std::fs::write(&config, format!("[node]\nsysfs = {}\n{devices}", sysfs.display()))
            .expect("the file is written");
        let settings =
            Settings::read(Some(&config), CommandLine::default()).expect("the text is parsed");
        let mut report = Report::default();
        check(&settings, &mut report);
        report
    }

    #[test]
    fn missing_devices_are_reported_with_the_existing_ones() {
        let good = report_for("[devices]\nenabled_mdev_types = mtty-1\n");
        assert_eq!(good.exit_code(), 0, "{}", good.text());
        assert!(good.text().contains("1 offered"), "{}", good.text());
        for wrong in [
            "[devices]\nenabled_mdev_types = nvidia-35\n",
            "[devices]\nenabled_mdev_types = mtty-1\n[mdev_mtty-1]\ndevice_addresses = other_other\n",
        ] {
            let report = report_for(wrong);
            assert_eq!(report.exit_code(), 1, "{}", report.text());
            assert!(
                report.text().contains("this host has mtty_mtty (mtty-1)"),
                "{}",
                report.text()
            );
        }
        let absent = report_for("[devices]\nnvlink_islands = 0000:18:00.0,0000:19:00.0\n");
        assert_eq!(absent.exit_code(), 1, "{}", absent.text());
        let why = "nvlink_islands: this host has no PCI function 0000:18:00.0";
        assert!(absent.text().contains(why), "{}", absent.text());
        assert_eq!(report_for("").exit_code(), 0, "none are configured");
    }

    #[test]
    fn a_gpu_that_is_bound_to_the_hosts_driver_is_named() {
        let held =
            "0000:84:00.0 is offered for passthrough, but bound to this host's driver nvidia";
        let spec = r#"device_spec = {"vendor_id": "10de", "product_id": "2335"}"#;
        let report = report_for(&format!("[pci]\n{spec}\n"));
        assert!(report.text().contains(held), "{}", report.text());
        assert!(report.text().contains("driverctl set-override 0000:84:00.0 vfio-pci"));
        assert_eq!(report.exit_code(), 0, "{}", report.text());
        let others = report_for("[devices]\nenabled_mdev_types = mtty-1\n");
        assert!(!others.text().contains(held), "{}", others.text());
    }
}
