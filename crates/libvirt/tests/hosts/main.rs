//! The driver with real libvirtds and real guests: two hosts on this machine, without KVM and devices.
//!
//! Where they cannot be, the tests say so and pass.

mod host;

use std::path::Path;
use std::time::{Duration, Instant};

use host::{Host, guest, life, to};
use kilonova_hypervisor::{Definition, Hypervisor, Life, Transfer};
use kilonova_ids::ServerId;
use kilonova_libvirt::{Config, Driver};
use kilonova_node_api::{Departure, DiskFormat};

/// Brings a guest up on a host and waits until it counts.
async fn boot(driver: &Driver, host: &Host, guest: &Definition) -> u32 {
    driver.prepare(guest).await.expect("disks");
    driver.define(guest).await.expect("defined");
    driver.start(guest.server).await.expect("started");
    host.counts_past(guest.server, 3).await
}

/// Readies a host for a guest that comes.
async fn expect(driver: &Driver, guest: &Definition) {
    driver.prepare(guest).await.expect("disks");
    driver.define(guest).await.expect("defined");
    driver.receive(guest.server).await.expect("awaited");
    assert_eq!(life(driver, guest.server).await, Some(Life::Incoming));
}

/// Removes what waits for a guest, or what a guest that left has left behind.
async fn clear(driver: &Driver, server: ServerId) {
    driver.destroy(server).await.expect("destroyed");
    driver.undefine(server).await.expect("undefined");
    assert_eq!(life(driver, server).await, None);
}

async fn leave(
    driver: &Driver,
    server: ServerId,
    departure: &Departure,
) -> Result<Transfer, kilonova_hypervisor::Error> {
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        match driver.depart(server, departure).await? {
            Transfer::Going(_) if Instant::now() < end => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            done => return Ok(done),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_libvirt_that_hangs_holds_up_nobody() {
    if let Some(why) = host::missing() {
        kilonova_testkit::skip(why);
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().canonicalize().expect("a path");
    let one = Host::start(&root, "127.0.0.1");
    let here = one.driver(Config::default()).await;
    let counting = guest();
    let server = counting.server;
    let counted = boot(&here, &one, &counting).await;
    one.signal("-STOP");
    let asked = Instant::now();
    let look = || here.domain(server);
    let (first, second) = tokio::join!(look(), look());
    for error in [first.expect_err("no answer"), second.expect_err("no answer")] {
        assert!(error.message.contains("libvirt"), "{error}");
    }
    assert!(asked.elapsed() < Duration::from_secs(90), "{:?}", asked.elapsed());
    assert!(here.trouble().is_some_and(|why| why.contains("systemctl status libvirtd")));
    let counted = one.counts_past(server, counted).await;
    one.signal("-CONT");
    assert_eq!(life(&here, server).await, Some(Life::Running), "it answers again");
    assert_eq!(here.trouble(), None);
    one.counts_past(server, counted).await;
    clear(&here, server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mediated_device_that_somebody_removed_is_removed() {
    if let Some(why) = host::missing().or_else(host::no_mdevs) {
        kilonova_testkit::skip(why);
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().canonicalize().expect("a path");
    let one = Host::start(&root, "127.0.0.1");
    let here = one.driver(Config::default()).await;
    let mdevs = here.mdevs().expect("libvirt keeps them");
    let (uuid, parent) = (uuid::Uuid::new_v4(), host::pci().expect("a device"));
    let remove = || mdevs.remove(uuid, &parent, "mtty-1");
    remove().await.expect("it was never there");
    for _ in 0..5 {
        one.define_mdev(uuid, &parent);
        assert_eq!(one.mdevs(&parent).len(), 1);
        let all = tokio::join!(remove(), remove(), remove(), remove());
        assert_eq!(all, (Ok(()), Ok(()), Ok(()), Ok(())));
        assert!(one.mdevs(&parent).is_empty());
    }
    one.define_mdev(uuid, &parent);
    let another = mdevs.remove(uuid, &parent, "mtty-2").await;
    assert_eq!((another, one.mdevs(&parent).len()), (Ok(()), 1), "somebody else's");
    one.signal("-STOP");
    for file in one.mdevs(&parent) {
        std::fs::remove_file(file).expect("removed behind libvirt's back");
    }
    let (removed, ()) = tokio::join!(remove(), async { one.signal("-CONT") });
    removed.expect("it is gone");
    let guest = guest();
    here.prepare(&guest).await.expect("disks");
    here.define(&guest).await.expect("defined");
    here.start(guest.server).await.expect("started");
    let destroy = || here.destroy(guest.server);
    assert_eq!(tokio::join!(destroy(), destroy(), destroy()), (Ok(()), Ok(()), Ok(())));
    let undefine = || here.undefine(guest.server);
    let all = tokio::join!(undefine(), undefine(), undefine(), destroy());
    assert_eq!(all, (Ok(()), Ok(()), Ok(()), Ok(())));
    assert_eq!(life(&here, guest.server).await, None);
}

/// What is on a copy of a disk, which is sound and over no other file.
fn whole(copy: &Path) -> Vec<u8> {
    let raw = copy.with_extension("raw");
    let run = |arguments: &[&str]| {
        let done = std::process::Command::new("qemu-img").args(arguments).arg(copy).output();
        let done = done.expect("qemu-img");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).expect("text")
    };
    run(&["check", "-q", "-f", "qcow2"]);
    let about = run(&["info", "-f", "qcow2"]);
    assert!(!about.contains("backing file"), "{about}");
    let done = std::process::Command::new("qemu-img")
        .args(["convert", "-f", "qcow2", "-O", "raw"])
        .args([copy, &raw])
        .output()
        .expect("qemu-img");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let bytes = std::fs::read(&raw).expect("a copy");
    std::fs::remove_file(raw).expect("removed");
    bytes
}

/// Writes to a disk that is not in use, so that there is something to bring over.
fn fill(host: &Host, server: ServerId, mebi: u32) {
    let disk = host.instances().join(server.to_string()).join("disk");
    let write = format!("write -P 7 2M {mebi}M");
    let done = std::process::Command::new("qemu-io").args(["-c", &write]).arg(disk).output();
    assert!(done.expect("qemu-io").status.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn guests_live_and_go_from_host_to_host() {
    if let Some(why) = host::missing() {
        kilonova_testkit::skip(why);
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().canonicalize().expect("a path");
    let mut one = Host::start(&root, "127.0.0.1");
    let two = Host::start(&root, "127.0.0.2");
    let slow = Config { live_migration_bandwidth: 1, ..Config::default() };
    let here = one.driver(Config::default()).await;
    let there = two.driver(slow.clone()).await;
    assert_eq!(here.about().hypervisor_type, "QEMU");

    let counting = guest();
    let server = counting.server;
    let counted = boot(&here, &one, &counting).await;
    let found = here.domain(server).await.expect("looked").expect("there");
    assert_eq!(found.definition(), Ok(counting.clone()), "libvirt keeps what it was told");
    let usage = here.usage(server).await.expect("counted");
    assert_eq!((usage.state.as_str(), usage.disks.len()), ("running", 1));
    assert!(usage.cpu_ns.len() == 1 && usage.cpu_ns[0] > 0, "{usage:?}");
    assert!(here.console(server).await.expect("said").contains("tick 0001"));
    assert_eq!(here.running().await.expect("listed"), [server]);

    let copy = root.join("copy/of.qcow2");
    for _ in 0..2 {
        let format = here.snapshot(server, copy.clone()).await.expect("copied while it runs");
        assert_eq!(format, DiskFormat::Qcow2);
        let size = std::fs::metadata(&copy).expect("a copy").len();
        assert!(size < 64 << 20, "{size} bytes of a disk that is nearly empty");
        let bytes = whole(&copy);
        assert_eq!((bytes.len(), &bytes[510..512]), (1 << 30, &[0x55, 0xaa][..]));
    }
    let counted = one.counts_past(server, counted).await;

    here.pause(server).await.expect("paused");
    assert_eq!(life(&here, server).await, Some(Life::Paused));
    here.unpause(server).await.expect("goes on");
    here.suspend(server).await.expect("suspended");
    assert_eq!(life(&here, server).await, Some(Life::Saved));
    here.resume(server).await.expect("resumed");
    let counted = one.counts_past(server, counted).await;

    one.restart();
    assert_eq!(life(&here, server).await, Some(Life::Running), "found again by itself");
    assert_eq!(here.trouble(), None);
    let counted = one.counts_past(server, counted).await;

    let error = leave(&here, server, &to(&two, false)).await.expect_err("nobody waits there");
    assert!(!error.message.is_empty());
    assert_eq!(life(&here, server).await, Some(Life::Running), "and nothing is lost");
    let counted = one.counts_past(server, counted).await;

    expect(&there, &counting).await;
    assert_eq!(leave(&here, server, &to(&two, false)).await, Ok(Transfer::Gone));
    assert_eq!(life(&here, server).await, Some(Life::Left));
    assert_eq!(here.depart(server, &to(&two, false)).await, Ok(Transfer::Gone), "said again");
    there.arrive(server, Life::Running).await.expect("it is there");
    assert_eq!(life(&there, server).await, Some(Life::Running));
    let counted = two.counts_past(server, counted).await;
    let found = there.domain(server).await.expect("looked").expect("there");
    assert_eq!(found.definition(), Ok(counting.clone()));
    clear(&here, server).await;

    expect(&here, &counting).await;
    assert_eq!(leave(&there, server, &to(&one, true)).await, Ok(Transfer::Gone), "by force");
    one.counts_past(server, counted).await;
    assert_eq!(life(&here, server).await, Some(Life::Running));
    clear(&there, server).await;
    here.stop(server).await.expect("stopped by force, as it does not listen");
    assert_eq!(life(&here, server).await, Some(Life::Off));
    assert!(here.running().await.expect("listed").is_empty());
    clear(&here, server).await;
    assert!(!one.instances().join(server.to_string()).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_departure_is_called_off_and_outlives_the_agent() {
    if let Some(why) = host::missing() {
        kilonova_testkit::skip(why);
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().canonicalize().expect("a path");
    let one = Host::start(&root, "127.0.0.1");
    let two = Host::start(&root, "127.0.0.2");
    let slow = Config { live_migration_bandwidth: 1, ..Config::default() };
    let here = one.driver(slow.clone()).await;
    let there = two.driver(Config::default()).await;
    let counting = guest();
    let server = counting.server;
    here.prepare(&counting).await.expect("disks");
    fill(&one, server, 40);
    let mut counted = boot(&here, &one, &counting).await;

    for restarted in [false, true] {
        expect(&there, &counting).await;
        let going = here.depart(server, &to(&two, false)).await.expect("going");
        assert!(matches!(going, Transfer::Going(_)));
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            match here.depart(server, &to(&two, false)).await.expect("going") {
                Transfer::Going(progress) if progress.disk_processed > 0 => {
                    assert!(progress.disk_remaining > 0 && progress.disk_total > 30 << 20);
                    break;
                }
                Transfer::Going(_) => assert!(Instant::now() < end, "nothing moves"),
                Transfer::Gone => panic!("too fast to be called off"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        if restarted {
            let again = one.driver(slow.clone()).await;
            let going = again.depart(server, &to(&two, false)).await;
            assert!(matches!(going, Ok(Transfer::Going(_))), "taken up: {going:?}");
            let third = one.driver(slow.clone()).await;
            third.stay(server).await.expect("called off by a process that did not begin it");
            let ended = leave(&again, server, &to(&two, false)).await.expect_err("it stays");
            assert!(ended.message.contains("still here"), "{ended}");
        } else {
            here.stay(server).await.expect("called off");
            here.stay(server).await.expect("nothing to call off");
        }
        assert_eq!(life(&here, server).await, Some(Life::Running));
        counted = one.counts_past(server, counted).await;
        assert_eq!(life(&there, server).await, Some(Life::Incoming), "that side still waits");
        clear(&there, server).await;
    }
    clear(&here, server).await;
}
