//! Tests of the driver with real libvirtds and guests: two hosts on this machine, without KVM and
//! devices.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

mod host;
mod volumes;

use std::path::Path;
use std::time::{Duration, Instant};

use host::{Host, domain_state, guest, to};
use kilonova_hypervisor::{Definition, DomainState, Hypervisor, MigrationState};
use kilonova_ids::ServerId;
use kilonova_libvirt::{Driver, LibvirtConfig};
use kilonova_node_api::{DiskFormat, OutgoingMigration};

/// Boots a guest on a host and waits until its counter runs.
async fn boot(driver: &Driver, host: &Host, guest: &Definition) -> u32 {
    driver.prepare(guest).await.expect("the disks are created");
    driver.define(guest).await.expect("the domain is defined");
    driver.start(guest.server).await.expect("the guest is started");
    host.counts_past(guest.server, 3).await
}

/// Prepares a host for an incoming guest.
async fn expect(driver: &Driver, guest: &Definition) {
    driver.prepare(guest).await.expect("the disks are created");
    driver.define(guest).await.expect("the domain is defined");
    driver.prepare_incoming(guest.server).await.expect("the domain is incoming");
    assert_eq!(domain_state(driver, guest.server).await, Some(DomainState::Incoming));
}

/// Removes an incoming domain, or one whose guest has migrated.
async fn clear(driver: &Driver, server: ServerId) {
    driver.destroy(server).await.expect("the guest is destroyed");
    driver.undefine(server).await.expect("the domain is undefined");
    assert_eq!(domain_state(driver, server).await, None);
}

async fn leave(
    driver: &Driver,
    server: ServerId,
    migration: &OutgoingMigration,
) -> Result<MigrationState, kilonova_hypervisor::Error> {
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        match driver.migrate_out(server, migration).await? {
            MigrationState::InProgress(_) if Instant::now() < end => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            done => return Ok(done),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_libvirt_blocks_nobody() {
    if let Some(why) = host::missing() {
        kilonova_testkit::skip(why);
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let root = folder.path().canonicalize().expect("the file is read");
    let one = Host::start(&root, "127.0.0.1");
    let here = one.driver(LibvirtConfig::default()).await;
    let counting = guest();
    let server = counting.server;
    let counted = boot(&here, &one, &counting).await;
    one.signal("-STOP");
    let asked = Instant::now();
    let look = || here.domain(server);
    let (first, second) = tokio::join!(look(), look());
    for error in [first.expect_err("the call fails"), second.expect_err("the call fails")] {
        assert!(error.message.contains("libvirt"), "{error}");
    }
    assert!(asked.elapsed() < Duration::from_secs(90), "{:?}", asked.elapsed());
    assert!(here.connection_error().is_some_and(|why| why.contains("systemctl status libvirtd")));
    let counted = one.counts_past(server, counted).await;
    one.signal("-CONT");
    assert_eq!(
        domain_state(&here, server).await,
        Some(DomainState::Running),
        "libvirt answers again"
    );
    assert_eq!(here.connection_error(), None);
    one.counts_past(server, counted).await;
    clear(&here, server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn removing_a_removed_mediated_device_succeeds() {
    if let Some(why) = host::missing().or_else(host::no_mdevs) {
        kilonova_testkit::skip(why);
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let root = folder.path().canonicalize().expect("the file is read");
    let one = Host::start(&root, "127.0.0.1");
    let here = one.driver(LibvirtConfig::default()).await;
    let mdevs = here.mdevs().expect("libvirt keeps mediated devices");
    let (uuid, parent) = (uuid::Uuid::new_v4(), host::pci().expect("the host has a PCI device"));
    let remove = || mdevs.remove(uuid, &parent, "mtty-1");
    remove().await.expect("removing an absent device succeeds");
    for _ in 0..5 {
        one.define_mdev(uuid, &parent);
        assert_eq!(one.mdevs(&parent).len(), 1);
        let all = tokio::join!(remove(), remove(), remove(), remove());
        assert_eq!(all, (Ok(()), Ok(()), Ok(()), Ok(())));
        assert!(one.mdevs(&parent).is_empty());
    }
    one.define_mdev(uuid, &parent);
    let another = mdevs.remove(uuid, &parent, "mtty-2").await;
    assert_eq!(
        (another, one.mdevs(&parent).len()),
        (Ok(()), 1),
        "a device of another type is left alone"
    );
    one.signal("-STOP");
    for file in one.mdevs(&parent) {
        std::fs::remove_file(file).expect("the file is removed");
    }
    let (removed, ()) = tokio::join!(remove(), async { one.signal("-CONT") });
    removed.expect("removing a vanished device succeeds");
    let guest = guest();
    here.prepare(&guest).await.expect("the disks are created");
    here.define(&guest).await.expect("the domain is defined");
    here.start(guest.server).await.expect("the guest is started");
    let destroy = || here.destroy(guest.server);
    assert_eq!(tokio::join!(destroy(), destroy(), destroy()), (Ok(()), Ok(()), Ok(())));
    let undefine = || here.undefine(guest.server);
    let all = tokio::join!(undefine(), undefine(), undefine(), destroy());
    assert_eq!(all, (Ok(()), Ok(()), Ok(()), Ok(())));
    assert_eq!(domain_state(&here, guest.server).await, None);
}

/// The content of a copied disk, which must pass `qemu-img check` and have no backing file.
fn whole(copy: &Path) -> Vec<u8> {
    let raw = copy.with_extension("raw");
    let run = |arguments: &[&str]| {
        let done = std::process::Command::new("qemu-img").args(arguments).arg(copy).output();
        let done = done.expect("qemu-img runs");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).expect("the text is UTF-8")
    };
    run(&["check", "-q", "-f", "qcow2"]);
    let info = run(&["info", "-f", "qcow2"]);
    assert!(!info.contains("backing file"), "{info}");
    let done = std::process::Command::new("qemu-img")
        .args(["convert", "-f", "qcow2", "-O", "raw"])
        .args([copy, &raw])
        .output()
        .expect("the program runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let bytes = std::fs::read(&raw).expect("the file is read");
    std::fs::remove_file(raw).expect("the file is removed");
    bytes
}

/// Fills a disk that is not in use, so that a migration has something to copy.
fn fill(host: &Host, server: ServerId, mebi: u32) {
    let disk = host.instances().join(server.to_string()).join("disk");
    let write = format!("write -P 7 2M {mebi}M");
    let done = std::process::Command::new("qemu-io").args(["-c", &write]).arg(disk).output();
    assert!(done.expect("qemu-io runs").status.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn guests_run_and_migrate_live() {
    if let Some(why) = host::missing() {
        kilonova_testkit::skip(why);
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let root = folder.path().canonicalize().expect("the file is read");
    let mut one = Host::start(&root, "127.0.0.1");
    let two = Host::start(&root, "127.0.0.2");
    let slow = LibvirtConfig { live_migration_bandwidth: 1, ..LibvirtConfig::default() };
    let here = one.driver(LibvirtConfig::default()).await;
    let there = two.driver(slow.clone()).await;
    assert_eq!(here.info().hypervisor_type, "QEMU");

    let counting = guest();
    let server = counting.server;
    let counted = boot(&here, &one, &counting).await;
    let found = here.domain(server).await.expect("the lookup succeeds").expect("the domain exists");
    assert_eq!(found.definition(), Ok(counting.clone()), "libvirt keeps the definition");
    let usage = here.usage(server).await.expect("the usage is read");
    assert_eq!((usage.state.as_str(), usage.disks.len()), ("running", 1));
    assert!(usage.cpu_ns.len() == 1 && usage.cpu_ns[0] > 0, "{usage:?}");
    assert!(here.console(server).await.expect("the log is read").contains("tick 0001"));
    assert_eq!(here.running().await.expect("the guests are listed"), [server]);

    let copy = root.join("copy/of.qcow2");
    for _ in 0..2 {
        let format =
            here.snapshot(server, copy.clone()).await.expect("a running guest's disk is copied");
        assert_eq!(format, DiskFormat::Qcow2);
        let size = std::fs::metadata(&copy).expect("the copy exists").len();
        assert!(size < 64 << 20, "{size} bytes for a nearly empty disk");
        let bytes = whole(&copy);
        assert_eq!((bytes.len(), &bytes[510..512]), (1 << 30, &[0x55, 0xaa][..]));
    }
    let counted = one.counts_past(server, counted).await;

    here.pause(server).await.expect("the guest is paused");
    assert_eq!(domain_state(&here, server).await, Some(DomainState::Paused));
    here.unpause(server).await.expect("the guest is unpaused");
    here.suspend(server).await.expect("the guest is suspended");
    assert_eq!(domain_state(&here, server).await, Some(DomainState::Saved));
    here.resume(server).await.expect("the guest is resumed");
    let counted = one.counts_past(server, counted).await;

    one.restart();
    assert_eq!(
        domain_state(&here, server).await,
        Some(DomainState::Running),
        "the driver reconnects"
    );
    assert_eq!(here.connection_error(), None);
    let counted = one.counts_past(server, counted).await;

    let error = leave(&here, server, &to(&two, false))
        .await
        .expect_err("the destination has no incoming domain");
    assert!(!error.message.is_empty());
    assert_eq!(domain_state(&here, server).await, Some(DomainState::Running), "the guest stays");
    let counted = one.counts_past(server, counted).await;

    expect(&there, &counting).await;
    assert_eq!(leave(&here, server, &to(&two, false)).await, Ok(MigrationState::Completed));
    assert_eq!(domain_state(&here, server).await, Some(DomainState::MigratedOut));
    assert_eq!(
        here.migrate_out(server, &to(&two, false)).await,
        Ok(MigrationState::Completed),
        "the result is repeated"
    );
    there
        .finish_incoming(server, DomainState::Running)
        .await
        .expect("the guest runs at the destination");
    assert_eq!(domain_state(&there, server).await, Some(DomainState::Running));
    let counted = two.counts_past(server, counted).await;
    let found =
        there.domain(server).await.expect("the lookup succeeds").expect("the domain exists");
    assert_eq!(found.definition(), Ok(counting.clone()));
    clear(&here, server).await;

    expect(&here, &counting).await;
    assert_eq!(
        leave(&there, server, &to(&one, true)).await,
        Ok(MigrationState::Completed),
        "a forced migration completes"
    );
    one.counts_past(server, counted).await;
    assert_eq!(domain_state(&here, server).await, Some(DomainState::Running));
    clear(&there, server).await;
    here.stop(server).await.expect("a guest that ignores the shutdown is destroyed");
    assert_eq!(domain_state(&here, server).await, Some(DomainState::Shutoff));
    assert!(here.running().await.expect("the guests are listed").is_empty());
    clear(&here, server).await;
    assert!(!one.instances().join(server.to_string()).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_can_be_aborted_and_outlives_the_agent() {
    if let Some(why) = host::missing() {
        kilonova_testkit::skip(why);
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let root = folder.path().canonicalize().expect("the file is read");
    let one = Host::start(&root, "127.0.0.1");
    let two = Host::start(&root, "127.0.0.2");
    let slow = LibvirtConfig { live_migration_bandwidth: 1, ..LibvirtConfig::default() };
    let here = one.driver(slow.clone()).await;
    let there = two.driver(LibvirtConfig::default()).await;
    let counting = guest();
    let server = counting.server;
    here.prepare(&counting).await.expect("the disks are created");
    fill(&one, server, 40);
    let mut counted = boot(&here, &one, &counting).await;

    for restarted in [false, true] {
        expect(&there, &counting).await;
        let going = here.migrate_out(server, &to(&two, false)).await.expect("the migration starts");
        assert!(matches!(going, MigrationState::InProgress(_)));
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            match here
                .migrate_out(server, &to(&two, false))
                .await
                .expect("the migration is running")
            {
                MigrationState::InProgress(progress) if progress.disk_processed > 0 => {
                    assert!(progress.disk_remaining > 0 && progress.disk_total > 30 << 20);
                    break;
                }
                MigrationState::InProgress(_) => {
                    assert!(Instant::now() < end, "the migration makes no progress")
                }
                MigrationState::Completed => {
                    panic!("the migration completed before it could be aborted")
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        if restarted {
            let again = one.driver(slow.clone()).await;
            let going = again.migrate_out(server, &to(&two, false)).await;
            assert!(
                matches!(going, Ok(MigrationState::InProgress(_))),
                "resumed by a new agent: {going:?}"
            );
            let third = one.driver(slow.clone()).await;
            third.abort_migration(server).await.expect("another process aborts the migration");
            let ended = leave(&again, server, &to(&two, false))
                .await
                .expect_err("the migration is aborted");
            assert!(ended.message.contains("still here"), "{ended}");
        } else {
            here.abort_migration(server).await.expect("the migration is aborted");
            here.abort_migration(server).await.expect("aborting without a migration succeeds");
        }
        assert_eq!(domain_state(&here, server).await, Some(DomainState::Running));
        counted = one.counts_past(server, counted).await;
        assert_eq!(
            domain_state(&there, server).await,
            Some(DomainState::Incoming),
            "the destination is still ready"
        );
        clear(&there, server).await;
    }
    clear(&here, server).await;
}
