//! Mediated devices as persistent node devices of libvirt's: it starts them again with the host,
//! before any guest.
//!
//! One of the right uuid with another parent or of another type is somebody else's, and is left alone.

use std::time::Duration;

use kilonova_hypervisor::{Answer, Error, Mdevs, Step};
use roxmltree::Document;
use uuid::Uuid;
use virt::connect::Connect;
use virt::error::{Error as VirtError, ErrorNumber};
use virt::nodedev::NodeDevice;
use virt_sys as sys;

use crate::connection::{Link, SLOW, is};
use crate::sys as ours;
use crate::xml::mdev;

const TRIES: u32 = 3;
const AGAIN: Duration = Duration::from_millis(500);

/// libvirt's mediated devices.
pub(super) struct NodeDevices {
    link: Link,
}

/// What a node device says it is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Said {
    uuid: Uuid,
    /// As libvirt names it: `pci_0000_84_00_0`.
    parent: String,
    mdev_type: String,
}

impl NodeDevices {
    pub(super) fn new(link: Link) -> Self {
        Self { link }
    }
}

impl Mdevs for NodeDevices {
    fn create<'a>(&'a self, uuid: Uuid, parent: &'a str, mdev_type: &'a str) -> Answer<'a, ()> {
        let want = Said { uuid, parent: name(parent), mdev_type: mdev_type.to_owned() };
        Box::pin(async move {
            let made =
                self.link.call(Step::CreateMdev, SLOW, move |connect| create(connect, &want));
            made.await?.map_err(|why| Error::new(Step::CreateMdev, why))
        })
    }

    fn remove<'a>(&'a self, uuid: Uuid, parent: &'a str, mdev_type: &'a str) -> Answer<'a, ()> {
        let want = Said { uuid, parent: name(parent), mdev_type: mdev_type.to_owned() };
        Box::pin(self.link.call(Step::CreateMdev, SLOW, move |connect| remove(connect, &want)))
    }
}

fn create(connect: &Connect, want: &Said) -> Result<Result<(), String>, VirtError> {
    let device = match find(connect, want.uuid)? {
        Some((_, said)) if said != *want => {
            return Ok(Err(format!(
                "mediated device {} exists already on {} with type {}",
                said.uuid, said.parent, said.mdev_type
            )));
        }
        Some((device, _)) if ours::is_node_device_persistent(&device)? => device,
        _ => ours::define_node_device(connect, &mdev(want.uuid, &want.parent, &want.mdev_type))?,
    };
    if let Err(error) = ours::autostart_node_device(&device) {
        tracing::warn!(uuid = %want.uuid, %error, "libvirt will not start a mediated device with the host");
    }
    for attempt in 1..=TRIES {
        if ours::is_node_device_active(&device)? {
            break;
        }
        match ours::start_node_device(&device) {
            Ok(()) => break,
            Err(error) if attempt < TRIES => {
                tracing::info!(uuid = %want.uuid, %error, "a mediated device does not start; once more");
                std::thread::sleep(AGAIN);
            }
            Err(error) => {
                if let Err(left) = ours::undefine_node_device(&device) {
                    tracing::warn!(uuid = %want.uuid, error = %left, "a mediated device stays defined");
                }
                return Err(error);
            }
        }
    }
    Ok(Ok(()))
}

/// Somebody else may remove it meanwhile, and libvirt has many words for that: what counts is that it
/// is not there any more.
fn remove(connect: &Connect, want: &Said) -> Result<(), VirtError> {
    match put_away(connect, want) {
        Err(_) if find(connect, want.uuid)?.is_none_or(|(_, said)| said != *want) => Ok(()),
        result => result,
    }
}

fn put_away(connect: &Connect, want: &Said) -> Result<(), VirtError> {
    let Some((device, _)) = find(connect, want.uuid)?.filter(|(_, said)| said == want) else {
        return Ok(());
    };
    let persistent = ours::is_node_device_persistent(&device)?;
    if ours::is_node_device_active(&device)?
        && let Err(error) = device.destroy()
        && !is_gone(error.code(), error.message())
        && ours::is_node_device_active(&device)?
    {
        return Err(error);
    }
    if !persistent {
        return Ok(());
    }
    match ours::undefine_node_device(&device) {
        Err(error) if is_gone(error.code(), error.message()) => Ok(()),
        result => result,
    }
}

/// Whether an error says that there is no such device. The words are those of `mdevctl`, of which
/// libvirt may list what is no longer there.
fn is_gone(number: ErrorNumber, message: &str) -> bool {
    number == ErrorNumber::NoNodeDevice || message.contains("No devices match")
}

/// The mediated device of that uuid, started or not.
fn find(connect: &Connect, uuid: Uuid) -> Result<Option<(NodeDevice, Said)>, VirtError> {
    let flags = sys::VIR_CONNECT_LIST_NODE_DEVICES_CAP_MDEV
        | sys::VIR_CONNECT_LIST_NODE_DEVICES_ACTIVE
        | sys::VIR_CONNECT_LIST_NODE_DEVICES_INACTIVE;
    let part = uuid.to_string().replace('-', "_");
    for device in connect.list_all_node_devices(flags)? {
        if !device.get_name()?.contains(&part) {
            continue;
        }
        let xml = match device.get_xml_desc(0) {
            Err(error) if is(&error, ErrorNumber::NoNodeDevice) => continue,
            result => result?,
        };
        if let Some(said) = read(&xml).filter(|said| said.uuid == uuid) {
            return Ok(Some((device, said)));
        }
    }
    Ok(None)
}

fn read(xml: &str) -> Option<Said> {
    let document = Document::parse(xml).ok()?;
    let device = document.root_element();
    let parent = device.children().find(|node| node.has_tag_name("parent"))?;
    let mdev = device.children().find(|node| node.attribute("type") == Some("mdev"))?;
    let child = |name| mdev.children().find(move |node| node.has_tag_name(name));
    Some(Said {
        uuid: child("uuid")?.text()?.parse().ok()?,
        parent: parent.text()?.to_owned(),
        mdev_type: child("type")?.attribute("id")?.to_owned(),
    })
}

/// What libvirt calls a parent: `pci_0000_84_00_0` for `0000:84:00.0`, and others by their own names.
fn name(parent: &str) -> String {
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
    fn what_libvirt_says_of_a_mediated_device() {
        let uuid = "83b8f4f2-509f-382f-3c1e-e6bfe0fa1001".parse().expect("a uuid");
        let want = Said { uuid, parent: name("0000:84:00.0"), mdev_type: "nvidia-35".into() };
        let xml = "<device><name>mdev_83b8f4f2_509f_382f_3c1e_e6bfe0fa1001_0000_84_00_0</name>
            <path>/sys/devices/x</path><parent>pci_0000_84_00_0</parent>
            <driver><name>vfio_mdev</name></driver>
            <capability type='mdev'><type id='nvidia-35'/>
            <uuid>83b8f4f2-509f-382f-3c1e-e6bfe0fa1001</uuid><iommuGroup number='12'/></capability></device>";
        assert_eq!(read(xml), Some(want.clone()));
        assert_eq!(read(&mdev(uuid, &want.parent, &want.mdev_type)), Some(want));
        assert_eq!(name("mtty_mtty"), "mtty_mtty");
        assert_eq!(read("<device><name>computer</name></device>"), None);
    }

    #[test]
    fn what_says_that_a_device_is_gone() {
        let undefine = "internal error: Unable to undefine mediated device: No devices match the specified uuid";
        assert!(is_gone(ErrorNumber::InternalError, undefine));
        assert!(is_gone(ErrorNumber::NoNodeDevice, "no node device with matching name 'mdev_x'"));
        let busy = "Unable to destroy 'mdev_x': device in use";
        assert!(!is_gone(ErrorNumber::InternalError, busy));
    }
}
