//! Checks that libvirt answers, and which features the versions of libvirt and QEMU support.

use std::path::Path;

use kilonova_libvirt::{Versions, inspect, missing_certificates};

use super::Report;
use crate::settings::Settings;

const AREA: &str = "libvirt";

pub(super) async fn check(settings: &Settings, report: &mut Report) {
    match inspect(&settings.libvirt).await {
        Err(error) => report.wrong(
            AREA,
            error.message,
            "apt install libvirt-daemon-system qemu-system-x86, and see `systemctl status libvirtd`; \
             running guests are not affected",
        ),
        Ok(versions) => evaluate(&versions, settings.mdev.enabled.is_empty(), report),
    }
    for why in missing_certificates(&settings.libvirt, Path::new("/etc")) {
        report.warn(
            AREA,
            why,
            "install certificates of your authority there, and restart libvirtd; live migration is \
             disabled until then",
        );
    }
}

fn evaluate(versions: &Versions, no_mdevs: bool, report: &mut Report) {
    let (libvirt, hypervisor) =
        (versions.dotted(versions.libvirt), versions.dotted(versions.hypervisor));
    report.ok(AREA, format!("libvirt {libvirt}, {} {hypervisor}", versions.kind));
    if no_mdevs {
        return;
    }
    if let Err(why) = versions.supports_mdevs() {
        report.warn(
            AREA,
            why,
            "mediated devices are created in sysfs instead, and recreated when the agent starts after a \
             reboot",
        );
    }
    if let Err(why) = versions.migrates_mdevs() {
        report.warn(AREA, why, "guests with mediated devices can be migrated only while shut off");
    }
    if let Err(why) = versions.migrates_functions() {
        report.warn(AREA, why, "guests with such functions can be migrated only while shut off");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_versions_are_a_warning_where_they_matter() {
        let versions = Versions {
            kind: "QEMU".into(),
            libvirt: 7_000_000,
            hypervisor: 7_002_000,
            kernel: 5_010_000,
            mdevctl: false,
        };
        for (no_mdevs, findings) in [(true, 1), (false, 4)] {
            let mut report = Report::default();
            evaluate(&versions, no_mdevs, &mut report);
            assert_eq!((report.findings.len(), report.exit_code()), (findings, 0));
        }
    }
}
