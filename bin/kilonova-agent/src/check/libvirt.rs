//! Whether libvirt answers, and what it and QEMU are new enough for.

use std::path::Path;

use kilonova_libvirt::{Versions, lacking_certificates, look};

use super::Report;
use crate::settings::Settings;

const AREA: &str = "libvirt";

pub(super) async fn look_at(settings: &Settings, report: &mut Report) {
    match look(&settings.libvirt).await {
        Err(error) => report.wrong(
            AREA,
            error.message,
            "apt install libvirt-daemon-system qemu-system-x86, and see `systemctl status libvirtd`; \
             guests that run go on",
        ),
        Ok(versions) => judge(&versions, settings.mdev.enabled.is_empty(), report),
    }
    for why in lacking_certificates(&settings.libvirt, Path::new("/etc")) {
        report.warn(
            AREA,
            why,
            "put certificates of your authority there, and restart libvirtd; no guest can leave for \
             another host, or come from one, before",
        );
    }
}

fn judge(versions: &Versions, no_mdevs: bool, report: &mut Report) {
    let (libvirt, hypervisor) =
        (versions.text(versions.libvirt), versions.text(versions.hypervisor));
    report.fine(AREA, format!("libvirt {libvirt}, {} {hypervisor}", versions.kind));
    if no_mdevs {
        return;
    }
    if let Err(why) = versions.keeps_mdevs() {
        report.warn(
            AREA,
            why,
            "mediated devices are made in sysfs instead, and made again when the agent starts after a \
             reboot",
        );
    }
    if let Err(why) = versions.moves_mdevs() {
        report.warn(
            AREA,
            why,
            "guests with mediated devices cannot move while they run; shut off they can",
        );
    }
    if let Err(why) = versions.moves_functions() {
        report.warn(
            AREA,
            why,
            "guests with such functions cannot move while they run; shut off they can",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_programs_are_a_warning_where_it_matters() {
        let versions = Versions {
            kind: "QEMU".into(),
            libvirt: 7_000_000,
            hypervisor: 7_002_000,
            kernel: 5_010_000,
            mdevctl: false,
        };
        for (no_mdevs, findings) in [(true, 1), (false, 4)] {
            let mut report = Report::default();
            judge(&versions, no_mdevs, &mut report);
            assert_eq!((report.findings.len(), report.exit_code()), (findings, 0));
        }
    }
}
