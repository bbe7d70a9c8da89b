//! The driver on libvirt's `test:///default`, an in-process libvirtd without guests.

use std::time::Duration;

use kilonova_devices::Directory;
use kilonova_disks::{Answers, Images, Reading};
use kilonova_hypervisor::Definition;
use kilonova_ids::{ImageId, ServerId};
use tempfile::TempDir;

use super::*;
use crate::xml::tests::definition;

/// An image service without images.
struct NoImages;

impl Images for NoImages {
    fn read(&self, _: ImageId, _: u64) -> Reading<'_> {
        Box::pin(async { Err("there are no images".to_owned()) })
    }

    fn vendordata(&self, _: ServerId) -> Answers<'_> {
        Box::pin(async { Err("there are no services".to_owned()) })
    }
}

struct Here {
    driver: Driver,
    _folder: TempDir,
}

impl std::ops::Deref for Here {
    type Target = Driver;
    fn deref(&self) -> &Driver {
        &self.driver
    }
}

async fn driver(uri: &str) -> Result<Here, Error> {
    let config = LibvirtConfig {
        connection_uri: uri.to_owned(),
        shutdown_timeout: Duration::from_secs(5),
        ..LibvirtConfig::default()
    };
    let sysfs = Arc::new(Directory(PathBuf::from("/sys")));
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let instances_path = folder.path().to_owned();
    let disks =
        kilonova_disks::DisksConfig { instances_path, ..kilonova_disks::DisksConfig::default() };
    let disks = Disks::open(disks, Arc::new(NoImages)).expect("opens");
    Ok(Here { driver: Driver::open(config, disks, sysfs).await?, _folder: folder })
}

async fn state_of(driver: &Driver) -> Option<DomainState> {
    driver.domain(definition().server).await.expect("the lookup succeeds").map(|found| found.state)
}

#[tokio::test]
async fn the_life_cycle_of_a_guest() {
    let driver = driver("test:///default").await.expect("the test driver connects");
    assert!(driver.versions().libvirt > 6_000_000);
    let guest = definition();
    let server = guest.server;
    assert_eq!(driver.servers().await, Ok(Vec::new()), "the test driver's own domain is not ours");
    assert_eq!(state_of(&driver).await, None);
    assert!(driver.start(server).await.is_err_and(|error| error.message.contains("no domain")));

    driver.define(&guest).await.expect("the domain is defined");
    assert_eq!(driver.servers().await, Ok(vec![server]));
    let found =
        driver.domain(server).await.expect("the lookup succeeds").expect("the domain exists");
    assert_eq!((found.definition(), found.state), (Ok(guest.clone()), DomainState::Shutoff));

    for _ in 0..2 {
        driver.start(server).await.expect("the guest runs");
        assert_eq!(state_of(&driver).await, Some(DomainState::Running));
    }
    for _ in 0..2 {
        driver.pause(server).await.expect("the guest is paused");
        assert_eq!(state_of(&driver).await, Some(DomainState::Paused));
    }
    for _ in 0..2 {
        driver.unpause(server).await.expect("the guest runs");
        assert_eq!(state_of(&driver).await, Some(DomainState::Running));
    }
    driver.reboot(server).await.expect("the guest is rebooted");
    assert_eq!(state_of(&driver).await, Some(DomainState::Running));
    assert_eq!(driver.usage(server).await.expect("the usage is read").state, "running");

    let kept = driver.kept_machine_type(server).await.expect("the domain is read");
    assert_eq!(kept.as_deref(), Some("q35"));
    let none = driver.kept_machine_type(ServerId::new_v4()).await;
    assert_eq!(none, Ok(None), "the host has no domain of the server");

    let mut renamed = Definition { done: None, ..guest.clone() };
    renamed.config.display_name = "other".into();
    driver.define(&renamed).await.expect("a running domain is redefined");
    let found =
        driver.domain(server).await.expect("the lookup succeeds").expect("the domain exists");
    assert_eq!((found.definition(), found.state), (Ok(renamed), DomainState::Running));

    driver.suspend(server).await.expect("the guest is suspended");
    assert_eq!(state_of(&driver).await, Some(DomainState::Saved));
    driver.resume(server).await.expect("the guest is resumed");
    assert_eq!(state_of(&driver).await, Some(DomainState::Running));
    driver.suspend(server).await.expect("the guest is suspended");
    driver.destroy(server).await.expect("the save image is removed");
    assert_eq!(state_of(&driver).await, Some(DomainState::Shutoff));

    // libvirt's test driver cannot start a guest paused, and refuses the flag.
    let error = driver.start_paused(server).await.expect_err("the flag is sent");
    assert!(error.message.contains("unsupported flags (0x1)"), "{error}");
    driver.start(server).await.expect("the guest is started");
    driver.start_paused(server).await.expect("a guest that runs is left alone");
    assert_eq!(state_of(&driver).await, Some(DomainState::Running));
    driver.stop(server).await.expect("the guest is stopped");
    assert_eq!(state_of(&driver).await, Some(DomainState::Shutoff));
    driver.start(server).await.expect("the guest is started");
    for _ in 0..2 {
        driver.destroy(server).await.expect("the guest is destroyed");
        assert_eq!(state_of(&driver).await, Some(DomainState::Shutoff));
    }
    for _ in 0..2 {
        driver.undefine(server).await.expect("the domain is undefined");
        assert_eq!(state_of(&driver).await, None);
        driver.destroy(server).await.expect("destroying an absent domain succeeds");
    }
}

#[tokio::test]
async fn libvirt_keeps_the_mark_of_an_incoming_migration() {
    let driver = driver("test:///default").await.expect("the test driver connects");
    let guest = definition();
    let server = guest.server;
    driver.define(&guest).await.expect("the domain is defined");
    for _ in 0..2 {
        driver.prepare_incoming(server).await.expect("the domain is incoming");
        assert_eq!(state_of(&driver).await, Some(DomainState::Incoming));
        driver.define(&guest).await.expect("the domain is redefined");
        assert_eq!(
            state_of(&driver).await,
            Some(DomainState::Incoming),
            "a redefinition keeps the mark"
        );
    }
    let another = self::driver("test:///default").await.expect("a second driver connects");
    assert_eq!(state_of(&another).await, Some(DomainState::Incoming));
    let found =
        another.domain(server).await.expect("the lookup succeeds").expect("the domain exists");
    assert_eq!(found.definition(), Ok(guest));
    driver.start(server).await.expect("the guest is started");
    driver.finish_incoming(server, DomainState::Running).await.expect("the guest has arrived");
    driver.stop(server).await.expect("the guest is stopped");
    assert_eq!(state_of(&driver).await, Some(DomainState::Shutoff), "the mark is removed");
    driver.prepare_incoming(server).await.expect("the domain is incoming");
    driver.destroy(server).await.expect("the domain is destroyed");
    assert_eq!(state_of(&driver).await, Some(DomainState::Shutoff));
}

#[tokio::test]
async fn the_first_look_at_a_guest_that_has_arrived_records_its_hardware() {
    let driver = driver("test:///default").await.expect("the test driver connects");
    let guest = definition();
    let server = guest.server;
    driver.define(&guest).await.expect("the domain is defined");
    driver.start(server).await.expect("the guest is started");
    // The state after a crash of the agent between the guest's arrival and the next look.
    let as_after_a_crash = |connect: &Connect, domain: &Domain| {
        let (_, xml) = status(domain)?;
        assert!(xml.contains(r#"machine_type="q35""#), "{xml}");
        let other = xml.replace(r#"machine_type="q35""#, r#"machine_type="pc""#);
        let domain = Domain::define_xml(connect, &other)?;
        mark::set(&domain, Some(Mark::Incoming))
    };
    driver.with(Step::Define, QUICK, server, as_after_a_crash).await.expect("it is defined");
    assert_eq!(state_of(&driver).await, Some(DomainState::Running));
    let read = |_: &Connect, domain: &Domain| status(domain);
    let (status, xml) = driver.with(Step::Inspect, QUICK, server, read).await.expect("it is read");
    assert_eq!(status.mark, None);
    assert!(xml.contains(r#"machine_type="q35""#), "{xml}");
    driver.destroy(server).await.expect("the guest is destroyed");
}

#[tokio::test]
async fn a_guest_whose_hardware_could_not_be_recorded_keeps_its_mark() {
    let driver = driver("test:///default").await.expect("the test driver connects");
    let mut guest = definition();
    guest.config.machine.watchdog = Some("pause".into());
    let server = guest.server;
    driver.define(&guest).await.expect("the domain is defined");
    driver.start(server).await.expect("the guest is started");
    // libvirt refuses the redefinition, because its watchdog's action follows from the metadata.
    let arrive = |connect: &Connect, domain: &Domain| {
        let (_, xml) = status(domain)?;
        let other = xml.replace(r#"machine_type="q35""#, r#"machine_type="pc""#);
        let other = other.replacen("pause", "nonsense", 1);
        mark::set(&Domain::define_xml(connect, &other)?, Some(Mark::Incoming))
    };
    driver.with(Step::Define, QUICK, server, arrive).await.expect("it is defined");
    assert_eq!(state_of(&driver).await, Some(DomainState::Running), "the guest has arrived");
    let read = |_: &Connect, domain: &Domain| status(domain);
    let (status_now, _) =
        driver.with(Step::Inspect, QUICK, server, read).await.expect("it is read");
    assert_eq!(status_now.mark, Some(Mark::Arrived), "the next look tries again");

    let repair = |connect: &Connect, domain: &Domain| {
        let (_, xml) = status(domain)?;
        Domain::define_xml(connect, &xml.replacen("nonsense", "pause", 1)).map(drop)
    };
    driver.with(Step::Define, QUICK, server, repair).await.expect("it is defined");
    assert_eq!(state_of(&driver).await, Some(DomainState::Running));
    let (status_now, xml) =
        driver.with(Step::Inspect, QUICK, server, read).await.expect("it is read");
    assert_eq!(status_now.mark, None);
    assert!(xml.contains(r#"machine_type="q35""#), "{xml}");
    driver.destroy(server).await.expect("the guest is destroyed");
}

#[tokio::test]
async fn a_definition_waits_for_no_other_guest() {
    let driver = driver("test:///default").await.expect("the test driver connects");
    let guest = definition();
    let other = "22222222-2222-4222-8222-222222222222".parse().expect("an id");
    let other = driver.defining.take(other).await;
    driver.define(&guest).await.expect("the domain is defined");
    drop(other);
    let held = driver.defining.take(guest.server).await;
    let soon = Duration::from_millis(200);
    assert!(tokio::time::timeout(soon, driver.define(&guest)).await.is_err(), "its own waits");
    assert!(tokio::time::timeout(soon, driver.start(guest.server)).await.is_err(), "as its start");
    drop(held);
    driver.start(guest.server).await.expect("the guest is started");
    driver.destroy(guest.server).await.expect("the guest is destroyed");
}

#[tokio::test]
async fn changes_of_guests_are_reported() {
    let driver = driver("test:///default").await.expect("the test driver connects");
    let guest = definition();
    driver.define(&guest).await.expect("the domain is defined");
    while tokio::time::timeout(Duration::from_millis(200), driver.changed()).await.is_ok() {}
    driver.start(guest.server).await.expect("the guest is started");
    let notified = tokio::time::timeout(Duration::from_secs(30), driver.changed()).await;
    assert_eq!(notified.expect("an event arrives"), Ok(guest.server));
    driver.destroy(guest.server).await.expect("the guest is destroyed");
}

#[tokio::test]
async fn an_unreachable_libvirt_is_reported() {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let uri = format!("qemu+unix:///system?socket={}/none", folder.path().display());
    let error = driver(&uri).await.err().expect("libvirt is unreachable");
    assert!(error.message.contains("is unreachable"), "{error}");
}
