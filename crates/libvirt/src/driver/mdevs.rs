//! Mediated devices as persistent node devices of libvirt, which starts them at boot before any
//! guest.
//!
//! A device with the right UUID but another parent or type was not created by this agent, and is
//! left unchanged.

use std::time::Duration;

use kilonova_hypervisor::{DriverFuture, Error, Mdevs, Step};
use roxmltree::Document;
use uuid::Uuid;
use virt::connect::Connect;
use virt::error::{Error as VirtError, ErrorNumber};
use virt::nodedev::NodeDevice;
use virt_sys as sys;

use crate::connection::{Link, SLOW, has_code};
use crate::sys as sys_ext;
use crate::xml::mdev;

const ATTEMPTS: u32 = 3;
const AGAIN: Duration = Duration::from_millis(500);
/// How often to look for a device that libvirt has defined but does not list yet.
const LIST_ATTEMPTS: u32 = 8;

/// Libvirt's mediated devices.
pub(super) struct NodeDevices {
    link: Link,
}

/// The description of a mediated node device.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MdevInfo {
    uuid: Uuid,
    /// In libvirt's form: `pci_0000_84_00_0`.
    parent: String,
    mdev_type: String,
}

impl NodeDevices {
    pub(super) fn new(link: Link) -> Self {
        Self { link }
    }
}

impl Mdevs for NodeDevices {
    fn create<'a>(
        &'a self,
        uuid: Uuid,
        parent: &'a str,
        mdev_type: &'a str,
    ) -> DriverFuture<'a, ()> {
        let expected =
            MdevInfo { uuid, parent: node_device_name(parent), mdev_type: mdev_type.to_owned() };
        Box::pin(async move {
            let made =
                self.link.call(Step::CreateMdev, SLOW, move |connect| create(connect, &expected));
            made.await?.map_err(|why| Error::new(Step::CreateMdev, why))
        })
    }

    fn remove<'a>(
        &'a self,
        uuid: Uuid,
        parent: &'a str,
        mdev_type: &'a str,
    ) -> DriverFuture<'a, ()> {
        let expected =
            MdevInfo { uuid, parent: node_device_name(parent), mdev_type: mdev_type.to_owned() };
        Box::pin(self.link.call(Step::CreateMdev, SLOW, move |connect| remove(connect, &expected)))
    }
}

/// Creates a device, and retries while libvirt does not list it. libvirt reads `mdevctl`'s list in
/// a separate thread. If it read that list before the definition, it drops the new device until it
/// reads the next list.
fn create(connect: &Connect, expected: &MdevInfo) -> Result<Result<(), String>, VirtError> {
    let mut attempt = 1;
    let mut forgotten = false;
    loop {
        let error = match create_once(connect, expected) {
            Err(error) => error,
            created => return created,
        };
        // Libvirt refuses a second definition while it does not list the device.
        forgotten |= has_code(&error, ErrorNumber::NoNodeDevice);
        if !forgotten || attempt == LIST_ATTEMPTS {
            return Err(error);
        }
        tracing::info!(uuid = %expected.uuid, %error, "libvirt does not list a new mediated device yet; retrying");
        std::thread::sleep(AGAIN);
        attempt += 1;
    }
}

fn create_once(connect: &Connect, expected: &MdevInfo) -> Result<Result<(), String>, VirtError> {
    let device = match find(connect, expected.uuid)? {
        Some((_, found)) if found != *expected => {
            return Ok(Err(format!(
                "mediated device {} already exists on {} with type {}",
                found.uuid, found.parent, found.mdev_type
            )));
        }
        Some((device, _)) if sys_ext::is_node_device_persistent(&device)? => device,
        _ => sys_ext::define_node_device(
            connect,
            &mdev(expected.uuid, &expected.parent, &expected.mdev_type),
        )?,
    };
    if let Err(error) = sys_ext::autostart_node_device(&device) {
        if has_code(&error, ErrorNumber::NoNodeDevice) {
            return Err(error);
        }
        tracing::warn!(uuid = %expected.uuid, %error, "could not enable autostart of a mediated device; it is missing after a reboot");
    }
    for attempt in 1..=ATTEMPTS {
        if sys_ext::is_node_device_active(&device)? {
            break;
        }
        match sys_ext::start_node_device(&device) {
            Ok(()) => break,
            Err(error) if attempt < ATTEMPTS => {
                tracing::info!(uuid = %expected.uuid, %error, "could not start a mediated device; retrying");
                std::thread::sleep(AGAIN);
            }
            Err(error) if has_code(&error, ErrorNumber::NoNodeDevice) => return Err(error),
            Err(error) => {
                if let Err(kept) = sys_ext::undefine_node_device(&device) {
                    tracing::warn!(uuid = %expected.uuid, error = %kept, "could not undefine a mediated device after its start failed");
                }
                return Err(error);
            }
        }
    }
    Ok(Ok(()))
}

/// Removes a device. Another process may remove it at the same time, which libvirt reports with
/// various errors. Any error therefore counts as success once the device is gone.
fn remove(connect: &Connect, expected: &MdevInfo) -> Result<(), VirtError> {
    match destroy_and_undefine(connect, expected) {
        Err(_) if find(connect, expected.uuid)?.is_none_or(|(_, found)| found != *expected) => {
            Ok(())
        }
        result => result,
    }
}

fn destroy_and_undefine(connect: &Connect, expected: &MdevInfo) -> Result<(), VirtError> {
    let Some((device, _)) = find(connect, expected.uuid)?.filter(|(_, found)| found == expected)
    else {
        return Ok(());
    };
    let persistent = sys_ext::is_node_device_persistent(&device)?;
    if sys_ext::is_node_device_active(&device)?
        && let Err(error) = device.destroy()
        && !is_gone(error.code(), error.message())
        && sys_ext::is_node_device_active(&device)?
    {
        return Err(error);
    }
    if !persistent {
        return Ok(());
    }
    match sys_ext::undefine_node_device(&device) {
        Err(error) if is_gone(error.code(), error.message()) => Ok(()),
        result => result,
    }
}

/// True if the error means that the device does not exist. The text is `mdevctl`'s: libvirt may
/// list a device that is already gone.
fn is_gone(number: ErrorNumber, message: &str) -> bool {
    number == ErrorNumber::NoNodeDevice || message.contains("No devices match")
}

/// The mediated device with that UUID, active or not.
fn find(connect: &Connect, uuid: Uuid) -> Result<Option<(NodeDevice, MdevInfo)>, VirtError> {
    let flags = sys::VIR_CONNECT_LIST_NODE_DEVICES_CAP_MDEV
        | sys::VIR_CONNECT_LIST_NODE_DEVICES_ACTIVE
        | sys::VIR_CONNECT_LIST_NODE_DEVICES_INACTIVE;
    let part = uuid.to_string().replace('-', "_");
    for device in connect.list_all_node_devices(flags)? {
        if !device.get_name()?.contains(&part) {
            continue;
        }
        let xml = match device.get_xml_desc(0) {
            Err(error) if has_code(&error, ErrorNumber::NoNodeDevice) => continue,
            result => result?,
        };
        if let Some(found) = read(&xml).filter(|found| found.uuid == uuid) {
            return Ok(Some((device, found)));
        }
    }
    Ok(None)
}

fn read(xml: &str) -> Option<MdevInfo> {
    let document = Document::parse(xml).ok()?;
    let device = document.root_element();
    let parent = device.children().find(|node| node.has_tag_name("parent"))?;
    let mdev = device.children().find(|node| node.attribute("type") == Some("mdev"))?;
    let child = |name| mdev.children().find(move |node| node.has_tag_name(name));
    Some(MdevInfo {
        uuid: child("uuid")?.text()?.parse().ok()?,
        parent: parent.text()?.to_owned(),
        mdev_type: child("type")?.attribute("id")?.to_owned(),
    })
}

/// Libvirt's name of a parent: `pci_0000_84_00_0` for `0000:84:00.0`; other parents keep their
/// names.
fn node_device_name(parent: &str) -> String {
    if parent.contains(':') {
        format!("pci_{}", parent.replace([':', '.'], "_"))
    } else {
        parent.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mediated_devices_are_parsed() {
        let uuid = "83b8f4f2-509f-382f-3c1e-e6bfe0fa1001".parse().expect("the value is a UUID");
        let expected = MdevInfo {
            uuid,
            parent: node_device_name("0000:84:00.0"),
            mdev_type: "nvidia-35".into(),
        };
        let xml = "<device><name>mdev_83b8f4f2_509f_382f_3c1e_e6bfe0fa1001_0000_84_00_0</name>
            <path>/sys/devices/x</path><parent>pci_0000_84_00_0</parent>
            <driver><name>vfio_mdev</name></driver>
            <capability type='mdev'><type id='nvidia-35'/>
            <uuid>83b8f4f2-509f-382f-3c1e-e6bfe0fa1001</uuid><iommuGroup number='12'/></capability></device>";
        assert_eq!(read(xml), Some(expected.clone()));
        assert_eq!(read(&mdev(uuid, &expected.parent, &expected.mdev_type)), Some(expected));
        assert_eq!(node_device_name("mtty_mtty"), "mtty_mtty");
        assert_eq!(read("<device><name>computer</name></device>"), None);
    }

    #[test]
    fn errors_of_a_missing_device() {
        let undefine = "internal error: Unable to undefine mediated device: No devices match the specified uuid";
        assert!(is_gone(ErrorNumber::InternalError, undefine));
        assert!(is_gone(ErrorNumber::NoNodeDevice, "no node device with matching name 'mdev_x'"));
        let busy = "Unable to destroy 'mdev_x': device in use";
        assert!(!is_gone(ErrorNumber::InternalError, busy));
    }
}
