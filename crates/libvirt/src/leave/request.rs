//! What libvirt is asked for to send a guest away. Pure.

use kilonova_hypervisor::Definition;
use kilonova_node_api::{Attachment, Departure, Peer};
use roxmltree::Document;
use virt_sys as sys;

use crate::config::Config;
use crate::probe::Versions;
use crate::xml;

/// A migration as libvirt takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    /// The other host's libvirt.
    pub uri: String,
    /// Where the other host's QEMU listens.
    pub data: String,
    pub flags: u32,
    /// The domain's XML on the other host.
    pub xml: String,
    /// MiB a second.
    pub bandwidth: Option<u64>,
    pub connections: Option<i32>,
    /// GiB to bring over.
    pub gib: u64,
    /// Whether the guest may go before its memory has.
    pub post_copy: bool,
    /// Whether it has devices whose state QEMU fetches from the kernel.
    pub vfio: bool,
}

impl Request {
    /// The request for a running domain. The error is for people.
    pub(crate) fn new(
        config: &Config,
        versions: &Versions,
        definition: &Definition,
        running: &str,
        departure: &Departure,
    ) -> Result<Self, String> {
        let vfio = able(versions, &definition.devices)?;
        let xml = xml::leaving(running, &departure.devices)?;
        let mut flags =
            sys::VIR_MIGRATE_LIVE | sys::VIR_MIGRATE_PEER2PEER | sys::VIR_MIGRATE_ABORT_ON_ERROR;
        flags |= match copied(running) {
            Copied::Nothing => 0,
            Copied::WhatGuestsWrote => sys::VIR_MIGRATE_NON_SHARED_INC,
            Copied::All => sys::VIR_MIGRATE_NON_SHARED_DISK,
        };
        let post_copy = config.live_migration_permit_post_copy && !vfio;
        if post_copy {
            flags |= sys::VIR_MIGRATE_POSTCOPY;
        }
        if config.live_migration_permit_auto_converge && !vfio {
            flags |= sys::VIR_MIGRATE_AUTO_CONVERGE;
        }
        if config.live_migration_with_native_tls {
            flags |= sys::VIR_MIGRATE_TLS;
        }
        let connections = i32::try_from(config.live_migration_parallel_connections).unwrap_or(1);
        if connections > 1 {
            flags |= sys::VIR_MIGRATE_PARALLEL;
        }
        Ok(Self {
            uri: uri(config, &departure.to),
            data: format!("tcp://{}", in_uri(&departure.to)),
            flags,
            xml,
            bandwidth: Some(config.live_migration_bandwidth).filter(|limit| *limit > 0),
            connections: Some(connections).filter(|count| *count > 1),
            gib: gib(definition),
            post_copy,
            vfio,
        })
    }

    /// What the options permit and this guest is not sent by, in words for an operator.
    pub(crate) fn unused(&self, config: &Config) -> Option<&'static str> {
        let (post, converge) =
            (config.live_migration_permit_post_copy, config.live_migration_permit_auto_converge);
        match (self.vfio, post, converge) {
            (true, true, true) => Some("live_migration_permit_post_copy and _auto_converge"),
            (true, true, false) => Some("live_migration_permit_post_copy"),
            (true, false, true) => Some("live_migration_permit_auto_converge"),
            _ => None,
        }
    }
}

/// GiB that a guest brings over: its memory and its disks.
pub(super) fn gib(definition: &Definition) -> u64 {
    let boot = &definition.boot;
    u64::try_from(definition.memory_mb / 1024 + boot.root_gb + boot.ephemeral_gb)
        .unwrap_or_default()
}

/// Whether the guest has devices whose state QEMU must fetch from the kernel; refuses where the
/// host's programs cannot.
fn able(versions: &Versions, devices: &[Attachment]) -> Result<bool, String> {
    let mut vfio = false;
    for device in devices {
        match device {
            Attachment::Mdev { .. } => versions.moves_mdevs()?,
            Attachment::Vfio { .. } => versions.moves_functions()?,
            Attachment::Pci { address } => {
                return Err(format!(
                    "the state of the PCI function {address} cannot be taken along"
                ));
            }
            Attachment::TestPci { .. } => continue,
        }
        vfio = true;
    }
    Ok(vfio)
}

/// The other host's libvirt, as `live_migration_uri` has it.
fn uri(config: &Config, to: &Peer) -> String {
    match &config.live_migration_uri {
        Some(uri) => uri.replace("%s", &in_uri(to)),
        None => format!("qemu+{}://{}/system", config.live_migration_scheme, in_uri(to)),
    }
}

/// A host's address as it stands in a URI; its name where it has none.
fn in_uri(to: &Peer) -> String {
    let address = if to.address.is_empty() { &to.host } else { &to.address };
    if address.contains(':') { format!("[{address}]") } else { address.clone() }
}

#[derive(Debug, PartialEq, Eq)]
enum Copied {
    Nothing,
    /// All disks are over images that the other host has too.
    WhatGuestsWrote,
    All,
}

/// What of the disks has to be copied. One that is over nothing must be copied whole: on the other
/// host the same disk is over its image, which would show where this one holds nothing.
fn copied(running: &str) -> Copied {
    let Ok(document) = Document::parse(running) else { return Copied::All };
    let mut copied = Copied::Nothing;
    for disk in document.descendants().filter(|node| node.has_tag_name("disk")) {
        if disk.children().any(|child| child.has_tag_name("readonly")) {
            continue;
        }
        let below = disk.children().find(|child| child.has_tag_name("backingStore"));
        if !below.is_some_and(|below| below.has_attribute("type")) {
            return Copied::All;
        }
        copied = Copied::WhatGuestsWrote;
    }
    copied
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::xml::tests::definition;

    fn versions() -> Versions {
        Versions {
            kind: "QEMU".into(),
            libvirt: 11_003_000,
            hypervisor: 10_000_002,
            kernel: 6_012_000,
            mdevctl: true,
        }
    }

    fn departure(address: &str, devices: Vec<(Attachment, Attachment)>) -> Departure {
        let to = Peer { host: "there".into(), address: address.into() };
        Departure { to, devices, force: false }
    }

    const DISK: &str = "<domain><devices><disk><backingStore/></disk>
        <disk device='cdrom'><readonly/></disk></devices></domain>";
    const OVERLAY: &str =
        "<domain><devices><disk><backingStore type='file'/></disk></devices></domain>";

    #[test]
    fn the_other_host_in_uris() {
        let ask = |config: &Config, address: &str| {
            let departure = departure(address, Vec::new());
            let request = Request::new(config, &versions(), &definition(), DISK, &departure);
            let request = request.expect("a request");
            (request.uri, request.data)
        };
        let config = Config::default();
        let pair = |uri: &str, data: &str| (uri.to_owned(), data.to_owned());
        let to = pair("qemu+tcp://10.0.0.2/system", "tcp://10.0.0.2");
        assert_eq!(ask(&config, "10.0.0.2"), to);
        assert_eq!(ask(&config, "fd00::2"), pair("qemu+tcp://[fd00::2]/system", "tcp://[fd00::2]"));
        assert_eq!(ask(&config, ""), pair("qemu+tcp://there/system", "tcp://there"));
        let tls = Config { live_migration_scheme: "tls".into(), ..config.clone() };
        assert_eq!(ask(&tls, "10.0.0.2").0, "qemu+tls://10.0.0.2/system");
        let own = Config { live_migration_uri: Some("qemu+ssh://nova@%s/system".into()), ..config };
        assert_eq!(ask(&own, "10.0.0.2").0, "qemu+ssh://nova@10.0.0.2/system");
    }

    #[test]
    fn disks_are_copied_as_far_as_they_must_be() {
        let flags = |config: &Config, running: &str| {
            let departure = departure("10.0.0.2", Vec::new());
            let request = Request::new(config, &versions(), &definition(), running, &departure);
            request.expect("a request").flags
        };
        let copies = sys::VIR_MIGRATE_NON_SHARED_DISK | sys::VIR_MIGRATE_NON_SHARED_INC;
        let config = Config::default();
        assert_eq!(flags(&config, DISK) & copies, sys::VIR_MIGRATE_NON_SHARED_DISK);
        assert_eq!(flags(&config, OVERLAY) & copies, sys::VIR_MIGRATE_NON_SHARED_INC);
        assert_eq!(flags(&config, "<domain/>") & copies, 0);
    }

    #[test]
    fn guests_with_devices_do_not_go_before_their_memory() {
        let mdev = |uuid: u128| Attachment::Mdev {
            uuid: uuid::Uuid::from_u128(uuid),
            parent: "mtty_mtty".into(),
            mdev_type: "mtty-1".into(),
        };
        let running = format!(
            "<domain><devices><hostdev><source><address uuid='{}'/></source></hostdev></devices></domain>",
            uuid::Uuid::from_u128(1)
        );
        let config = Config {
            live_migration_permit_post_copy: true,
            live_migration_permit_auto_converge: true,
            ..Config::default()
        };
        let post = sys::VIR_MIGRATE_POSTCOPY | sys::VIR_MIGRATE_AUTO_CONVERGE;
        let plain = departure("10.0.0.2", Vec::new());
        let asked = Request::new(&config, &versions(), &definition(), DISK, &plain);
        let asked = asked.expect("a request");
        assert_eq!((asked.flags & post, asked.post_copy), (post, true));
        assert_eq!(asked.unused(&config), None);
        let with = |devices: Vec<Attachment>| Definition { devices, ..definition() };
        let pair = departure("10.0.0.2", vec![(mdev(1), mdev(2))]);
        let ask = |versions: &Versions| {
            Request::new(&config, versions, &with(vec![mdev(1)]), &running, &pair)
        };
        let asked = ask(&versions()).expect("a request");
        assert_eq!((asked.flags & post, asked.post_copy), (0, false));
        assert!(asked.unused(&config).is_some_and(|options| options.contains("post_copy")));
        assert_eq!(asked.unused(&Config::default()), None);
        assert!(asked.xml.contains(&uuid::Uuid::from_u128(2).to_string()));
        let old = Versions { libvirt: 8_005_000, ..versions() };
        assert!(ask(&old).is_err_and(|why| why.contains("libvirt is 8.5.0")));
        let whole = with(vec![Attachment::Pci { address: "0000:0c:00.0".into() }]);
        let refused = Request::new(&config, &versions(), &whole, "<domain/>", &plain);
        assert!(refused.is_err_and(|why| why.contains("0000:0c:00.0")));
    }
}
