//! The data behind all answers.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use kilonova_ids::{ImageId, ServerId};
use kilonova_node_api::{Boot, Bus, DomainConfig, GuestMetadata, InjectedFile, Interface, Machine};
use serde_json::{Map, Value};

use crate::path::{self, Answer};
use crate::{TaggedDisk, ec2, openstack};

/// All data that a guest may get about itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// The server.
    pub server: ServerId,
    /// Its EC2 name: `i-0000001a`.
    pub instance_id: String,
    /// Its display name.
    pub name: String,
    /// Its host name, with the domain ([`hostname`]).
    pub hostname: String,
    /// The metadata that the controller has resolved. `hostname`, `user_data` and `files` in it are not used.
    pub guest: GuestMetadata,
    /// The user data, decoded.
    pub user_data: Option<Vec<u8>>,
    /// Its network interfaces, in order.
    pub interfaces: Vec<Interface>,
    /// Its volumes with tags, in order.
    pub disks: Vec<TaggedDisk>,
    /// The EC2 names of its images.
    pub images: Images,
    /// The names of its security groups, in order.
    pub security_groups: Vec<String>,
    /// Its disks, by their EC2 role.
    pub block_devices: BlockDevices,
    /// The operator's data.
    pub vendordata: Vendordata,
}

/// The EC2 names of a server's images: `ami-…`, `aki-…` and `ari-…`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Images {
    /// The image of the root disk.
    pub machine: Option<String>,
    /// The kernel.
    pub kernel: Option<String>,
    /// The initial RAM disk.
    pub ramdisk: Option<String>,
}

/// The devices of the guest's disks by their EC2 role: `ami`, `root`, `ephemeral0`, `swap`, `ebs0`.
pub type BlockDevices = BTreeMap<String, String>;

/// The disk of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeDisk {
    /// The disk's name: `vdb`.
    pub device: String,
    /// True if it is the guest's root disk.
    pub is_root: bool,
}

/// The operator's data for guests.
#[derive(Debug, Clone, PartialEq)]
pub struct Vendordata {
    /// The content of the operator's file. `None` if the provider `StaticJSON` is off.
    pub fixed: Option<Value>,
    /// The answers of the operator's services, by name.
    pub dynamic: Map<String, Value>,
}

impl Default for Vendordata {
    /// The default: the provider `StaticJSON` is on, without a file.
    fn default() -> Self {
        Self { fixed: Some(Value::Object(Map::new())), dynamic: Map::new() }
    }
}

impl Document {
    /// The document of a guest, from its configuration on its host. `domain` is appended to a host
    /// name without one.
    ///
    /// # Errors
    /// The decoder's error if the user data is not base64.
    pub fn of_guest(
        server: ServerId,
        config: &DomainConfig,
        domain: &str,
        vendordata: Vendordata,
    ) -> Result<Self, base64::DecodeError> {
        let user_data = config.guest.user_data.as_ref();
        let user_data = user_data.map(|data| BASE64_STANDARD.decode(data)).transpose()?;
        let number = config.name.rsplit('-').next().unwrap_or_default();
        let volumes: Vec<VolumeDisk> = config
            .volumes
            .iter()
            .map(|volume| VolumeDisk { device: volume.device.clone(), is_root: volume.is_root() })
            .collect();
        Ok(Self {
            server,
            instance_id: format!("i-{number}"),
            name: config.display_name.clone(),
            hostname: hostname(&config.guest.hostname, domain),
            user_data,
            interfaces: config.interfaces.clone(),
            disks: config.volumes.iter().filter_map(TaggedDisk::of).collect(),
            images: Images {
                machine: name("ami", config.guest.images.machine, config.boot.image),
                kernel: name("aki", config.guest.images.kernel, config.machine.kernel),
                ramdisk: name("ari", config.guest.images.ramdisk, config.machine.ramdisk),
            },
            security_groups: config.guest.security_groups.clone(),
            block_devices: Self::block_devices(&config.boot, &config.machine, &volumes),
            vendordata,
            guest: config.guest.clone().without_files(),
        })
    }

    /// The answer to a path of the metadata service; `None` if the path does not exist.
    ///
    /// `seed` is the base64 of 512 fresh random bytes. `today` (`2026-01-31`) hides the versions of
    /// the format that are in the future. `address` is the guest's address as seen by the forwarder
    /// of the request; it replaces the first IPv4 address of a guest without one.
    pub fn lookup(
        &self,
        path: &str,
        seed: &str,
        today: &str,
        address: Option<&str>,
    ) -> Option<Answer> {
        path::lookup(self, path, seed, today, address)
    }

    /// The files of the config drive with their contents. `seed` is as in [`Document::lookup`]. Only the config drive has
    /// the `injected` files: as upstream, the metadata service serves neither their contents nor their list
    /// (`InstanceMetadata` in `nova/api/metadata/base.py`).
    ///
    /// # Errors
    /// The decoder's error if the content of an injected file is not base64.
    pub fn drive(
        &self,
        injected: &[InjectedFile],
        seed: &str,
    ) -> Result<Vec<(String, Vec<u8>)>, base64::DecodeError> {
        let mut files = openstack::files(self, injected, seed);
        files.extend(ec2::files(self));
        for (number, file) in injected.iter().enumerate() {
            let name = format!("openstack/{}", openstack::content(number));
            files.push((name, BASE64_STANDARD.decode(&file.contents)?));
        }
        Ok(files)
    }

    /// The disks of a guest by their EC2 role, volumes in the order of their names (`instance_block_mapping`
    /// in `nova/block_device.py`). Local disks get the names that the volumes leave free, in the order in
    /// which hosts attach them.
    pub fn block_devices(boot: &Boot, machine: &Machine, volumes: &[VolumeDisk]) -> BlockDevices {
        let bus = machine.disk_bus.unwrap_or(Bus::Virtio);
        let is_free = |name: &String| volumes.iter().all(|volume| volume.device != *name);
        let mut free = bus.disk_names().filter(is_free);
        let mut devices = BlockDevices::new();
        let root = volumes.iter().find(|volume| volume.is_root);
        if let Some(root) = root.map(|root| root.device.clone()).or_else(|| free.next()) {
            devices.insert("root".to_owned(), format!("/dev/{root}"));
            devices.insert("ami".to_owned(), root);
        }
        for (role, size) in [("ephemeral0", boot.ephemeral_gb), ("swap", boot.swap_mb)] {
            if size > 0
                && let Some(device) = free.next()
            {
                devices.insert(role.to_owned(), format!("/dev/{device}"));
            }
        }
        let mut names: Vec<&str> = volumes.iter().map(|volume| volume.device.as_str()).collect();
        names.sort_unstable();
        let volumes = names.iter().enumerate();
        devices.extend(volumes.map(|(at, name)| (format!("ebs{at}"), format!("/dev/{name}"))));
        devices
    }
}

/// The EC2 name of an image: with its number in the cloud, or with the beginning of its id if the
/// document of an earlier version has no number.
fn name(kind: &str, number: Option<i64>, image: Option<ImageId>) -> Option<String> {
    let image = image?;
    Some(match number {
        Some(number) => format!("{kind}-{number:08x}"),
        None => format!("{kind}-{}", image.to_string().chars().take(8).collect::<String>()),
    })
}

/// The host name, with the domain appended if it has none.
pub fn hostname(name: &str, domain: &str) -> String {
    if domain.is_empty() || name.contains('.') {
        name.to_owned()
    } else {
        format!("{name}.{domain}")
    }
}
