//! Events of devices are kept until an operator handles them or the host reboots.

use super::*;
use crate::testing::Fixture;

const GPU: &str = "0000:84:00.0";
const FOLDER: &str = "devices/pci0000:84/0000:84:00.0";

fn listen(watch: &Watch) -> bool {
    watch.listen().expect("the log is readable");
    watch.take_unreported_events()
}

struct TestHost {
    sysfs: Fixture,
    kept: tempfile::TempDir,
}

impl TestHost {
    fn new() -> Self {
        let sysfs = Fixture::new();
        sysfs.function(GPU, ("10de", "1eb8", "030200"), 0, "nvidia");
        Self { sysfs, kept: tempfile::tempdir().expect("a temporary directory is created") }
    }

    fn log(&self) -> PathBuf {
        self.kept.path().join("kmsg")
    }

    fn start(&self, boot: &str, policy: &str) -> Watch {
        let options = HealthOptions {
            kernel_log: Some(self.log()),
            xid_policy: XidPolicy::parse(policy).expect("the policy is valid"),
        };
        let watch = Watch::open(&options, Some(self.kept.path().join("health")), boot);
        listen(&watch);
        watch
    }

    fn say(&self, line: &str) {
        use std::io::Write;
        let mut file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log())
            .expect("the log opens");
        writeln!(file, "{line}").expect("the file is written");
    }

    fn health(&self, watch: &Watch) -> Health {
        watch.health(&self.sysfs.sysfs(), GPU)
    }

    fn count(&self, fatal: u64, nonfatal: u64) {
        let text = |kind: &str, count: u64| format!("Undefined 0\nTOTAL_ERR_{kind} {count}\n");
        self.sysfs.write(&format!("{FOLDER}/aer_dev_fatal"), &text("FATAL", fatal));
        self.sysfs.write(&format!("{FOLDER}/aer_dev_nonfatal"), &text("NONFATAL", nonfatal));
    }
}

#[test]
fn events_survive_restarts_but_not_reboots() {
    let host = TestHost::new();
    let watch = host.start("a", "");
    assert_eq!(host.health(&watch), Health::Healthy);
    host.say("NVRM: Xid (PCI:0000:84:00): 13, a program's fault");
    assert!(!listen(&watch), "the message is ignored");
    host.say("NVRM: Xid (PCI:0000:84:00): 79, GPU has fallen off the bus.");
    assert!(listen(&watch));
    let failed = host.health(&watch);
    assert_eq!(failed.as_str(), "failed");
    assert!(failed.since().is_some(), "it is an event");
    assert_eq!(host.health(&host.start("a", "")), failed, "the same event, at the same time");
    assert_eq!(host.health(&host.start("b", "")), Health::Healthy, "the host rebooted");
}

#[test]
fn the_worst_event_is_reported_and_newer_ones_are_news() {
    let host = TestHost::new();
    let watch = host.start("a", "13:report");
    host.say("6,1,1000000,-;NVRM: Xid (PCI:0000:84:00): 13, x");
    listen(&watch);
    assert_eq!(host.health(&watch).as_str(), "degraded");
    host.say("6,2,2000000,-;NVRM: Xid (PCI:0000:84:00): 48, x");
    listen(&watch);
    let first = host.health(&watch);
    assert!(first.reason().is_some_and(|why| why.contains("double bit ECC")), "{first:?}");
    host.say("6,3,9000000,-;NVRM: Xid (PCI:0000:84:00): 79, x");
    listen(&watch);
    let second = host.health(&watch);
    let apart = second.since().zip(first.since()).map(|(b, a)| b.duration_since(a));
    assert_eq!(apart, Some(SignedDuration::from_secs(7)));
    assert!(second.reason().is_some_and(|why| why.contains("Xid 79")), "{second:?}");
}

#[test]
fn errors_count_when_they_grow() {
    let host = TestHost::new();
    host.count(0, 0);
    let watch = host.start("a", "");
    assert_eq!(host.health(&watch), Health::Healthy);
    host.count(0, 1);
    assert_eq!(host.health(&watch).as_str(), "degraded");
    host.count(2, 1);
    let failed = host.health(&watch);
    assert_eq!(failed.reason(), Some("the kernel counted 2 fatal PCIe errors on it"));
    assert_eq!(host.health(&watch), failed, "unchanged counters are no event");
    assert_eq!(host.health(&host.start("a", "")), failed);
    host.count(0, 0);
    assert_eq!(host.health(&watch), failed, "a reset does not clear the event");
    host.count(1, 0);
    let again = host.health(&watch);
    assert!(again.since() > failed.since(), "one more after the reset");
}

#[test]
fn a_device_off_the_bus_or_without_a_link_fails_while_it_lasts() {
    let host = TestHost::new();
    let watch = host.start("a", "");
    let gone = vec![0xff; 64];
    let config = host.sysfs.root().join(FOLDER).join("config");
    std::fs::write(&config, &gone).expect("the file is written");
    let health = host.health(&watch);
    assert_eq!((health.as_str(), health.since()), ("failed", None));
    let mut there = gone;
    there[4] = 6;
    std::fs::write(&config, there).expect("a virtual function without ids is healthy");
    assert_eq!(host.health(&watch), Health::Healthy);
    host.sysfs.write(&format!("{FOLDER}/max_link_width"), "16\n");
    host.sysfs.write(&format!("{FOLDER}/current_link_width"), "0\n");
    assert_eq!(host.health(&watch).reason(), Some("its PCIe link is down"));
    std::fs::remove_file(&config).expect("the file is removed");
    std::fs::create_dir(&config).expect("the directory is created");
    assert!(host.health(&watch).reason().is_some_and(|why| why.contains("could not read")));
}

#[test]
fn a_failed_bind_to_vfio_is_a_failure() {
    for line in [
        "vfio-pci: probe of 0000:84:00.0 failed with error -22",
        "vfio-pci 0000:84:00.0: probe with driver vfio-pci failed with error -22",
        "Nov 21 h kernel: vfio-pci: probe of 0000:84:00.0 failed with error -22",
    ] {
        let host = TestHost::new();
        let watch = host.start("a", "");
        host.say("nvme 0000:84:00.0: probe with driver nvme failed with error -5");
        assert!(!listen(&watch));
        host.say(line);
        assert!(listen(&watch), "{line}");
        let why = "binding vfio-pci to it failed: error -22";
        assert_eq!(host.health(&watch).reason(), Some(why), "{line}");
    }
}

#[test]
fn a_host_without_events_gets_no_directory() {
    let host = TestHost::new();
    let folder = host.kept.path().join("state");
    let options = HealthOptions { kernel_log: Some(host.log()), xid_policy: XidPolicy::default() };
    let start = || {
        let watch = Watch::open(&options, Some(folder.join("health")), "a");
        listen(&watch);
        watch
    };
    let watch = start();
    assert_eq!(host.health(&watch), Health::Healthy);
    assert!(!folder.exists());

    host.say("NVRM: Xid (PCI:0000:84:00): 79, GPU has fallen off the bus.");
    assert!(listen(&watch));
    assert!(matches!(host.health(&watch), Health::Failed { .. }));
    std::fs::remove_file(host.log()).expect("the file is removed");
    assert!(matches!(host.health(&start()), Health::Failed { .. }), "the event is recorded");
}

#[test]
fn an_invalid_record_is_ignored() {
    let host = TestHost::new();
    std::fs::write(host.kept.path().join("health"), "{\"boot\": 7").expect("the file is written");
    assert_eq!(host.health(&host.start("a", "")), Health::Healthy);
}

#[test]
fn the_number_of_recorded_devices_is_bounded() {
    let host = TestHost::new();
    let watch = host.start("a", "");
    for bus in 0..=255 {
        for device in 0..8 {
            host.say(&format!("NVRM: Xid (PCI:0001:{bus:02x}:{device:02x}): 79, x"));
        }
    }
    listen(&watch);
    assert!(watch.state().memory.devices.len() <= MOST_DEVICES);
}
