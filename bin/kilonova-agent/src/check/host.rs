//! Checks the machine and its kernel: KVM, IOMMU, vfio, NUMA cells.

use std::path::Path;

use kilonova_libvirt::VirtType;
use kilonova_node::devices::{CellOptions, Directory, Driver};

use super::Report;
use crate::settings::Settings;

pub(super) fn check(settings: &Settings, report: &mut Report) {
    match settings.libvirt.virt_type {
        VirtType::Kvm => kvm(Path::new("/dev/kvm"), report),
        VirtType::Qemu => report.warn(
            "kvm",
            "not used: [libvirt] virt_type = qemu emulates the guests' processors",
            "remove virt_type if /dev/kvm exists",
        ),
    }
    let sources = &settings.sources;
    let drives = sources.drivers.iter().any(|driver| *driver != Driver::Fake);
    let passes_through = drives || !sources.specs.is_empty() || !sources.nvme.is_empty();
    iommu(&settings.sysfs, passes_through, report);
    let needed = passes_through || !settings.mdev.enabled.is_empty();
    vfio(&settings.sysfs, needed, settings.mdev.enabled.is_empty(), report);
    cells(&settings.sysfs, &settings.cells, report);
    address(settings, report);
}

/// Options for CPUs and memory pages that the host does not have.
fn cells(sysfs: &Path, options: &CellOptions, report: &mut Report) {
    const AREA: &str = "numa";
    const REMEDY: &str = "correct [compute] cpu_dedicated_set and cpu_shared_set, and [DEFAULT] reserved_huge_pages; \
                          lscpu and numactl --hardware describe the host";
    let found = match options.read(&Directory(sysfs.to_owned())) {
        Ok(found) => found,
        Err(error) => return report.wrong(AREA, error.to_string(), REMEDY),
    };
    for problem in &found.problems {
        report.wrong(AREA, problem.clone(), REMEDY);
    }
    match &found.cells {
        _ if !found.problems.is_empty() => {}
        None => report.ok(AREA, "the kernel reports no nodes"),
        Some(cells) => report.ok(AREA, format!("NUMA cells: {}", cells.len())),
    }
}

fn kvm(device: &Path, report: &mut Report) {
    let opened = std::fs::OpenOptions::new().read(true).write(true).open(device);
    match opened {
        Ok(_) => report.ok("kvm", format!("{} is usable", device.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => report.wrong(
            "kvm",
            format!(
                "{} is missing: guests would be emulated, a hundred times slower",
                device.display()
            ),
            "enable virtualization (VT-x, AMD-V) in the firmware, then: modprobe kvm_intel, or \
             kvm_amd",
        ),
        Err(error) => report.wrong(
            "kvm",
            format!("cannot open {}: {error}", device.display()),
            "run the agent as root or as a member of the group kvm",
        ),
    }
}

fn iommu(sysfs: &Path, needed: bool, report: &mut Report) {
    let groups = std::fs::read_dir(sysfs.join("kernel/iommu_groups")).map_or(0, Iterator::count);
    if groups > 0 {
        return report.ok("iommu", format!("on, {groups} groups"));
    }
    let remedy = "enable VT-d or AMD-Vi in the firmware, and add intel_iommu=on (on AMD it is on \
        by default) and iommu=pt to the kernel's command line";
    if needed {
        report.wrong("iommu", "off: no PCI function can be passed through", remedy);
    } else {
        report.warn("iommu", "off: PCI functions could not be passed through", remedy);
    }
}

fn vfio(sysfs: &Path, needed: bool, only_functions: bool, report: &mut Report) {
    let loaded = |module: &str| sysfs.join("module").join(module).exists();
    let wanted: &[&str] = if only_functions { &["vfio", "vfio_pci"] } else { &["vfio", "mdev"] };
    let missing: Vec<&str> = wanted.iter().copied().filter(|module| !loaded(module)).collect();
    if missing.is_empty() {
        return report.ok("vfio", format!("{} loaded", wanted.join(", ")));
    }
    let what = format!("not loaded: {}", missing.join(", "));
    let names = missing.join(" ").replace("vfio_pci", "vfio-pci");
    let remedy = format!("modprobe -a {names}, and list them in /etc/modules-load.d/kilonova.conf");
    if needed {
        report.wrong("vfio", what, remedy);
    } else {
        report.warn("vfio", format!("{what} (no device is offered yet)"), remedy);
    }
}

fn address(settings: &Settings, report: &mut Report) {
    let Some(address) = settings.my_ip else { return };
    match std::net::UdpSocket::bind((address, 0)) {
        Ok(_) => report.ok("address", address.to_string()),
        Err(error) => report.wrong(
            "address",
            format!("[DEFAULT] my_ip = {address} is not an address of this host: {error}"),
            "use one of `ip -brief address`",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(paths: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        for path in paths {
            std::fs::create_dir_all(folder.path().join(path)).expect("the directory is created");
        }
        folder
    }

    #[test]
    fn cpus_that_the_host_does_not_have_are_an_error() {
        let sysfs = folder(&["devices/system/node/node0"]);
        let node = sysfs.path().join("devices/system/node/node0");
        std::fs::write(node.join("cpulist"), "0-3\n").expect("the file is written");
        std::fs::write(node.join("meminfo"), "Node 0 MemTotal: 4096 kB\n")
            .expect("the file is written");
        for (set, code, words) in [("1-3", 0, "NUMA cells: 1"), ("4", 1, "Online cpuset(s): 0-3")] {
            let options = CellOptions::new(Some("0"), Some(set), &[], 4).expect("the set is valid");
            let mut report = Report::default();
            cells(sysfs.path(), &options, &mut report);
            assert_eq!(report.exit_code(), code);
            assert!(report.text().contains(words), "{}", report.text());
        }
    }

    #[test]
    fn a_feature_that_no_device_needs_is_a_warning() {
        for (needed, code) in [(true, 1), (false, 0)] {
            let bare = folder(&["kernel/iommu_groups", "module/vfio"]);
            let mut report = Report::default();
            iommu(bare.path(), needed, &mut report);
            vfio(bare.path(), needed, true, &mut report);
            assert_eq!(report.exit_code(), code);
            let text = report.text();
            assert!(text.contains("intel_iommu=on"), "{text}");
            assert!(
                text.contains("not loaded: vfio_pci") && text.contains("-a vfio-pci,"),
                "{text}"
            );
        }
        let good = folder(&["kernel/iommu_groups/0", "module/vfio", "module/mdev"]);
        let mut report = Report::default();
        iommu(good.path(), true, &mut report);
        vfio(good.path(), true, false, &mut report);
        let absent = good.path().join("none");
        kvm(&absent, &mut report);
        assert_eq!(report.findings.len(), 3);
        let expected = format!("ERROR (kvm): {} is missing", absent.display());
        assert!(report.text().contains(&expected), "{}", report.text());
    }
}
