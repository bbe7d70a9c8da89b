//! Namespaces of NVMe over Fabrics. A subsystem stays connected while an attachment uses one of its
//! namespaces, or while the host has a foreign namespace of the subsystem.

use std::path::{Path, PathBuf};

use kilonova_ids::AttachmentId;
use kilonova_node_api::{NvmePortal, Nvmeof, Target, Volume, VolumeSource};

use crate::HostVolumes;
use crate::config::VolumesConfig;
use crate::scsi::{bytes_of, size};
use crate::system::{System, arguments, lasting_path};

const BLOCK: &str = "/sys/class/block";
const CONTROLLERS: &str = "/sys/class/nvme";

impl HostVolumes {
    pub(crate) async fn connect_nvmeof(
        &self,
        volume: &Volume,
        namespace: &Nvmeof,
    ) -> Result<VolumeSource, String> {
        let lock = self.locks.take([lock(namespace)]).await;
        let system = &*self.system;
        let mut last = String::new();
        for portal in &namespace.portals {
            if controller(system, &namespace.nqn, portal).is_none()
                && let Err(why) = connect(system, &namespace.nqn, portal).await
            {
                tracing::warn!(portal = %portal.address, subsystem = %namespace.nqn, %why, "could not connect a path of a volume");
                last = why;
            }
        }
        for attempt in 0..self.config.nvme_tries.max(1) {
            if attempt > 0 {
                tokio::time::sleep(self.config.look).await;
            }
            if let Some(name) = device(system, namespace) {
                grow(system, &name, namespace, volume.size_gb).await;
                drop(lock);
                let path = node(system, &self.config, namespace, &name).await;
                return Ok(VolumeSource::Block { path });
            }
        }
        if last.is_empty() {
            last = format!("the subsystem {} shows no namespace of the volume", namespace.nqn);
        }
        Err(last)
    }

    pub(crate) async fn disconnect_nvmeof(
        &self,
        attachment: AttachmentId,
        namespace: &Nvmeof,
    ) -> Result<(), String> {
        let _lock = self.locks.take([lock(namespace)]).await;
        let system = &*self.system;
        let others = self.others(attachment);
        let is_used = |other: &Target| match other {
            Target::Nvmeof(other) => other.nqn == namespace.nqn,
            Target::Rbd(_)
            | Target::Iscsi(_)
            | Target::Nfs(_)
            | Target::Local { .. }
            | Target::Unknown => false,
        };
        if let Some(name) = device(system, namespace) {
            let node = format!("/dev/{name}");
            if let Err(failure) = system.run("blockdev", arguments(&["--flushbufs", &node])).await {
                tracing::warn!(device = %name, why = %failure.message, "could not flush a volume");
            }
        }
        if others.iter().any(is_used) || controllers(system, &namespace.nqn).is_empty() {
            return Ok(());
        }
        let mut left = namespaces(system, &namespace.nqn);
        left.retain(|name| !is_of(system, name, namespace));
        if !left.is_empty() {
            tracing::info!(subsystem = %namespace.nqn, ?left, "a subsystem stays connected \
                because it has other namespaces");
            return Ok(());
        }
        let words = arguments(&["disconnect", "-n", &namespace.nqn]);
        match system.run("nvme", words).await {
            Err(_) if controllers(system, &namespace.nqn).is_empty() => Ok(()),
            result => result.map(drop).map_err(|failure| failure.message),
        }
    }
}

fn lock(namespace: &Nvmeof) -> String {
    format!("nvme {}", namespace.nqn)
}

async fn connect(system: &dyn System, nqn: &str, portal: &NvmePortal) -> Result<(), String> {
    let port = portal.port.to_string();
    // `-l -1`: the kernel never gives up a lost controller, because a guest may wait for the path
    // to return.
    let words = arguments(&[
        "connect",
        "-t",
        &portal.transport,
        "-n",
        nqn,
        "-a",
        &portal.address,
        "-s",
        &port,
        "-l",
        "-1",
    ]);
    match system.run("nvme", words).await {
        Err(failure) if failure.message.contains("already connected") => Ok(()),
        result => result.map(drop).map_err(|failure| failure.message),
    }
}

/// The controllers of a subsystem: `nvme1`, with their addresses.
fn controllers(system: &dyn System, nqn: &str) -> Vec<(String, String)> {
    let read = |name: &str, attribute: &str| {
        let path = Path::new(CONTROLLERS).join(name).join(attribute);
        system.read(&path).map(|text| text.trim().to_owned()).unwrap_or_default()
    };
    let names = system.list(Path::new(CONTROLLERS)).into_iter();
    let of = names.filter(|name| read(name, "subsysnqn") == nqn);
    of.map(|name| (read(&name, "address"), name)).map(|(address, name)| (name, address)).collect()
}

/// The controller of a portal, from `traddr=192.0.2.9,trsvcid=4420,src_addr=…`.
fn controller(system: &dyn System, nqn: &str, portal: &NvmePortal) -> Option<String> {
    let port = portal.port.to_string();
    let is_of = |address: &str| {
        let field = |name: &str| {
            address.split(',').find_map(|part| part.trim().strip_prefix(name)?.strip_prefix('='))
        };
        field("traddr") == Some(&portal.address) && field("trsvcid") == Some(&port)
    };
    controllers(system, nqn).into_iter().find(|(_, address)| is_of(address)).map(|(name, _)| name)
}

/// The block device of a namespace.
fn device(system: &dyn System, namespace: &Nvmeof) -> Option<String> {
    namespaces(system, &namespace.nqn).into_iter().find(|name| is_of(system, name, namespace))
}

/// The block devices of a subsystem's namespaces: `nvme1n1`.
fn namespaces(system: &dyn System, nqn: &str) -> Vec<String> {
    // The kernel's own paths below a multipath device have names such as nvme1c2n1.
    let is_namespace = |name: &String| {
        let rest = name.strip_prefix("nvme").and_then(|rest| rest.split_once('n'));
        rest.is_some_and(|(one, other)| [one, other].iter().all(|part| part.parse::<u32>().is_ok()))
    };
    let is_of = |name: &String| attribute(system, name, "device/subsysnqn").as_deref() == Some(nqn);
    let names = system.list(Path::new(BLOCK)).into_iter();
    names.filter(is_namespace).filter(is_of).collect()
}

/// True if a block device of its subsystem is this namespace.
fn is_of(system: &dyn System, name: &str, namespace: &Nvmeof) -> bool {
    let has = |of: &str, value: &dyn ToString| {
        attribute(system, name, of).is_some_and(|text| text == value.to_string())
    };
    match (&namespace.uuid, namespace.namespace) {
        (Some(uuid), _) => has("uuid", uuid),
        (None, Some(number)) => has("nsid", &number),
        (None, None) => false,
    }
}

fn attribute(system: &dyn System, name: &str, attribute: &str) -> Option<String> {
    let text = system.read(&Path::new(BLOCK).join(name).join(attribute)).ok()?;
    Some(text.trim().to_owned())
}

/// Makes the kernel rescan the namespaces if this one is smaller than expected.
async fn grow(system: &dyn System, name: &str, namespace: &Nvmeof, gib: i64) {
    if size(system, name).is_none_or(|bytes| bytes >= bytes_of(gib)) {
        return;
    }
    for (controller, _) in controllers(system, &namespace.nqn) {
        let file = Path::new(CONTROLLERS).join(&controller).join("rescan_controller");
        if let Err(error) = system.write(&file, "1").await {
            tracing::warn!(%controller, %error, "could not re-read the size of a volume");
        }
    }
}

/// The path of a namespace ([`lasting_path`]).
async fn node(
    system: &dyn System,
    config: &VolumesConfig,
    namespace: &Nvmeof,
    name: &str,
) -> PathBuf {
    let node = Path::new("/dev").join(name);
    let Some(uuid) = namespace.uuid else { return node };
    let lasting = Path::new("/dev/disk/by-id").join(format!("nvme-uuid.{uuid}"));
    lasting_path(system, config, &[lasting], node).await
}
