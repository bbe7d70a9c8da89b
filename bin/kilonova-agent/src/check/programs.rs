//! Checks the programs that a host needs.

use std::path::PathBuf;

use super::Report;

/// Program, package, purpose, and whether guests need it to run.
const NEEDED: &[(&str, &str, &str, bool)] = &[
    ("qemu-img", "qemu-utils", "disks of guests", true),
    ("genisoimage", "genisoimage", "config drives", true),
    ("ip", "iproute2", "bridges and VLANs", true),
    ("nft", "nftables", "security groups", true),
    ("dnsmasq", "dnsmasq-base", "DHCP and the metadata service", false),
    ("mdevctl", "mdevctl", "mediated devices that persist across a reboot of the host", false),
    ("rsync", "rsync", "moving disks to another host", false),
];

pub(super) fn check(report: &mut Report) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.extend(["/usr/sbin", "/sbin", "/usr/bin"].map(PathBuf::from));
    evaluate(&|program| folders.iter().any(|folder| folder.join(program).is_file()), report);
}

fn evaluate(is_there: &dyn Fn(&str) -> bool, report: &mut Report) {
    let mut all = true;
    for (program, package, what_for, needed) in NEEDED {
        if is_there(program) {
            continue;
        }
        all = false;
        let what = format!("{program} is missing: needed for {what_for}");
        let remedy = format!("apt install {package}");
        if *needed {
            report.wrong("programs", what, remedy);
        } else {
            report.warn("programs", what, remedy);
        }
    }
    if all {
        report.ok("programs", "all installed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_guests_need_are_errors_when_missing() {
        let mut report = Report::default();
        evaluate(&|_| true, &mut report);
        assert_eq!((report.findings.len(), report.exit_code()), (1, 0));
        let mut report = Report::default();
        evaluate(&|program| program != "dnsmasq", &mut report);
        assert_eq!((report.findings.len(), report.exit_code()), (1, 0));
        evaluate(&|program| program != "qemu-img", &mut report);
        assert!(report.exit_code() == 1 && report.text().contains("apt install qemu-utils"));
    }
}
