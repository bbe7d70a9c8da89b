//! The driver on libvirt's own test driver: a library that plays a libvirtd, with no guests behind it.

use std::time::Duration;

use kilonova_devices::Directory;
use kilonova_disks::{Images, Reading};
use kilonova_hypervisor::Definition;
use kilonova_ids::ImageId;
use tempfile::TempDir;

use super::*;
use crate::xml::tests::definition;

/// There are no images.
struct NoImages;

impl Images for NoImages {
    fn read(&self, _: ImageId, _: u64) -> Reading<'_> {
        Box::pin(async { Err("there are no images".to_owned()) })
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
    let config = Config {
        connection_uri: uri.to_owned(),
        shutdown_timeout: Duration::from_secs(5),
        ..Config::default()
    };
    let sysfs = Arc::new(Directory(PathBuf::from("/sys")));
    let folder = tempfile::tempdir().expect("a folder");
    let instances_path = folder.path().to_owned();
    let disks = kilonova_disks::Config { instances_path, ..kilonova_disks::Config::default() };
    let disks = Disks::open(disks, Arc::new(NoImages)).expect("opens");
    Ok(Here { driver: Driver::open(config, disks, sysfs).await?, _folder: folder })
}

async fn lives(driver: &Driver) -> Option<Life> {
    driver.domain(definition().server).await.expect("looked").map(|found| found.life)
}

#[tokio::test]
async fn a_guest_from_its_beginning_to_its_end() {
    let driver = driver("test:///default").await.expect("the test driver");
    assert!(driver.versions().libvirt > 6_000_000);
    let guest = definition();
    let server = guest.server;
    assert_eq!(driver.servers().await, Ok(Vec::new()), "the test driver's own domain is not ours");
    assert_eq!(lives(&driver).await, None);
    assert!(driver.start(server).await.is_err_and(|error| error.message.contains("no domain")));

    driver.define(&guest).await.expect("defined");
    assert_eq!(driver.servers().await, Ok(vec![server]));
    let found = driver.domain(server).await.expect("looked").expect("there");
    assert_eq!((found.definition(), found.life), (Ok(guest.clone()), Life::Off));

    for _ in 0..2 {
        driver.start(server).await.expect("started, or running");
        assert_eq!(lives(&driver).await, Some(Life::Running));
    }
    for _ in 0..2 {
        driver.pause(server).await.expect("paused");
        assert_eq!(lives(&driver).await, Some(Life::Paused));
    }
    for _ in 0..2 {
        driver.unpause(server).await.expect("running");
        assert_eq!(lives(&driver).await, Some(Life::Running));
    }
    driver.reboot(server).await.expect("restarted");
    assert_eq!(lives(&driver).await, Some(Life::Running));
    assert_eq!(driver.usage(server).await.expect("counted").state, "running");

    let renamed = Definition { display_name: "other".into(), done: None, ..guest.clone() };
    driver.define(&renamed).await.expect("defined anew while it runs");
    let found = driver.domain(server).await.expect("looked").expect("there");
    assert_eq!((found.definition(), found.life), (Ok(renamed), Life::Running));

    driver.suspend(server).await.expect("suspended");
    assert_eq!(lives(&driver).await, Some(Life::Saved));
    driver.resume(server).await.expect("resumed");
    assert_eq!(lives(&driver).await, Some(Life::Running));
    driver.suspend(server).await.expect("suspended");
    driver.destroy(server).await.expect("memory thrown away");
    assert_eq!(lives(&driver).await, Some(Life::Off));

    driver.start(server).await.expect("started");
    driver.stop(server).await.expect("stopped");
    assert_eq!(lives(&driver).await, Some(Life::Off));
    driver.start(server).await.expect("started");
    for _ in 0..2 {
        driver.destroy(server).await.expect("destroyed");
        assert_eq!(lives(&driver).await, Some(Life::Off));
    }
    for _ in 0..2 {
        driver.undefine(server).await.expect("undefined");
        assert_eq!(lives(&driver).await, None);
        driver.destroy(server).await.expect("there is nothing to destroy");
    }
}

#[tokio::test]
async fn a_domain_that_waits_for_its_guest_is_remembered_by_libvirt() {
    let driver = driver("test:///default").await.expect("the test driver");
    let guest = definition();
    let server = guest.server;
    driver.define(&guest).await.expect("defined");
    for _ in 0..2 {
        driver.receive(server).await.expect("ready");
        assert_eq!(lives(&driver).await, Some(Life::Incoming));
        driver.define(&guest).await.expect("defined anew");
        assert_eq!(lives(&driver).await, Some(Life::Incoming), "the mark stays");
    }
    let another = self::driver("test:///default").await.expect("another agent");
    assert_eq!(lives(&another).await, Some(Life::Incoming));
    let found = another.domain(server).await.expect("looked").expect("there");
    assert_eq!(found.definition(), Ok(guest));
    driver.start(server).await.expect("here it is");
    driver.arrive(server, Life::Running).await.expect("it runs");
    driver.stop(server).await.expect("stopped");
    assert_eq!(lives(&driver).await, Some(Life::Off), "and is awaited no longer");
    driver.receive(server).await.expect("ready");
    driver.destroy(server).await.expect("given up");
    assert_eq!(lives(&driver).await, Some(Life::Off));
}

#[tokio::test]
async fn whoever_asks_is_told_of_guests_that_change() {
    let driver = driver("test:///default").await.expect("the test driver");
    let guest = definition();
    driver.define(&guest).await.expect("defined");
    while tokio::time::timeout(Duration::from_millis(200), driver.changed()).await.is_ok() {}
    driver.start(guest.server).await.expect("started");
    let told = tokio::time::timeout(Duration::from_secs(30), driver.changed()).await;
    assert_eq!(told.expect("told"), Ok(guest.server));
    driver.destroy(guest.server).await.expect("destroyed");
}

#[tokio::test]
async fn an_agent_that_finds_no_libvirt_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let uri = format!("qemu+unix:///system?socket={}/none", folder.path().display());
    let error = driver(&uri).await.err().expect("no libvirt");
    assert!(error.message.contains("cannot be reached"), "{error}");
}
