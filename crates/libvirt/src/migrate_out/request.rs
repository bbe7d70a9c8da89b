//! Builds the request for an outgoing live migration. Pure.

use kilonova_hypervisor::Definition;
use kilonova_node_api::{Attachment, OutgoingMigration, Peer};
use roxmltree::{Document, Node};
use virt_sys as sys;

use crate::config::LibvirtConfig;
use crate::probe::Versions;
use crate::xml;

/// The parameters of libvirt's migration call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MigrationRequest {
    /// URI of the destination's libvirt.
    pub uri: String,
    /// URI that the destination's QEMU listens on.
    pub listen_uri: String,
    pub flags: u32,
    /// The domain's XML for the destination.
    pub xml: String,
    /// The names of the disks to copy, if the guest has others that are not copied; else empty.
    pub copied: Vec<String>,
    /// Limit in MiB/s.
    pub bandwidth: Option<u64>,
    pub connections: Option<i32>,
    /// GiB to transfer.
    pub gib: u64,
    /// True if post-copy may be used.
    pub post_copy: bool,
    /// True if the guest has VFIO devices, whose state QEMU reads from the kernel.
    pub vfio: bool,
}

impl MigrationRequest {
    /// The request for a running domain. The error is for the operator.
    pub(crate) fn new(
        config: &LibvirtConfig,
        versions: &Versions,
        definition: &Definition,
        running: &str,
        migration: &OutgoingMigration,
    ) -> Result<Self, String> {
        let vfio = check_devices(versions, &definition.config.devices)?;
        let numa = migration.numa.as_deref();
        let numa = numa.map(|numa| (numa, config.realtime_scheduler_priority));
        let xml = xml::migration_xml(running, migration, numa)?;
        let mut flags =
            sys::VIR_MIGRATE_LIVE | sys::VIR_MIGRATE_PEER2PEER | sys::VIR_MIGRATE_ABORT_ON_ERROR;
        flags |= match disk_copy(running) {
            DiskCopy::None => 0,
            DiskCopy::Incremental => sys::VIR_MIGRATE_NON_SHARED_INC,
            DiskCopy::Full => sys::VIR_MIGRATE_NON_SHARED_DISK,
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
            uri: uri(config, &migration.to),
            listen_uri: format!("tcp://{}", in_uri(&migration.to)),
            flags,
            xml,
            copied: copied_disks(running),
            bandwidth: Some(config.live_migration_bandwidth).filter(|limit| *limit > 0),
            connections: Some(connections).filter(|count| *count > 1),
            gib: gib(definition),
            post_copy,
            vfio,
        })
    }

    /// Options that are enabled but not used for this guest, for the log.
    pub(crate) fn unused_options(&self, config: &LibvirtConfig) -> Option<&'static str> {
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

/// Size of a guest's memory and disks in GiB.
pub(super) fn gib(definition: &Definition) -> u64 {
    let boot = &definition.config.boot;
    u64::try_from(definition.config.memory_mb / 1024 + boot.root_gb + boot.ephemeral_gb)
        .unwrap_or_default()
}

/// True if the guest has VFIO devices. Fails if the host's versions cannot migrate one of them.
fn check_devices(versions: &Versions, devices: &[Attachment]) -> Result<bool, String> {
    let mut vfio = false;
    for device in devices {
        match device {
            Attachment::Mdev { .. } => versions.migrates_mdevs()?,
            Attachment::Vfio { .. } => versions.migrates_functions()?,
            Attachment::Pci { address } => {
                return Err(format!("the PCI function {address} cannot be live-migrated"));
            }
            Attachment::TestPci { .. } => continue,
        }
        vfio = true;
    }
    Ok(vfio)
}

/// The URI of the destination's libvirt.
fn uri(config: &LibvirtConfig, to: &Peer) -> String {
    match &config.live_migration_uri {
        Some(uri) => uri.replace("%s", &in_uri(to)),
        None => format!("qemu+{}://{}/system", config.live_migration_scheme, in_uri(to)),
    }
}

/// A host's address in a URI; its name if it has no address.
fn in_uri(to: &Peer) -> String {
    let address = if to.address.is_empty() { to.host.as_str() } else { &to.address };
    if address.contains(':') { format!("[{address}]") } else { address.to_owned() }
}

#[derive(Debug, PartialEq, Eq)]
enum DiskCopy {
    None,
    /// All disks are overlays of images that the destination has too.
    Incremental,
    Full,
}

/// True for a disk that only this host has: neither a volume nor read-only.
fn is_copied(disk: Node<'_, '_>) -> bool {
    let is_readonly = disk.children().any(|child| child.has_tag_name("readonly"));
    !is_readonly && xml::volume_of(disk).is_none()
}

/// The names of the disks to copy, without volumes, which libvirt would copy onto themselves. Empty
/// for a guest without volumes, because libvirt's own choice is then the same.
fn copied_disks(running: &str) -> Vec<String> {
    let Ok(document) = Document::parse(running) else { return Vec::new() };
    let disks = || document.descendants().filter(|node| node.has_tag_name("disk"));
    if !disks().any(|disk| xml::volume_of(disk).is_some()) {
        return Vec::new();
    }
    let copied = disks().filter(|disk| is_copied(*disk));
    copied.filter_map(|disk| xml::target(disk).map(str::to_owned)).collect()
}

/// How the disks are copied. A disk without a backing file is copied in full: on the destination
/// the same disk is an overlay, whose image would show through where this disk has holes.
fn disk_copy(running: &str) -> DiskCopy {
    let Ok(document) = Document::parse(running) else { return DiskCopy::Full };
    let mut disk_copy = DiskCopy::None;
    for disk in document.descendants().filter(|node| node.has_tag_name("disk")) {
        if !is_copied(disk) {
            continue;
        }
        let below = disk.children().find(|child| child.has_tag_name("backingStore"));
        if !below.is_some_and(|below| below.has_attribute("type")) {
            return DiskCopy::Full;
        }
        disk_copy = DiskCopy::Incremental;
    }
    disk_copy
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LibvirtConfig;
    use crate::xml::tests::{changed, definition};

    fn versions() -> Versions {
        Versions {
            kind: "QEMU".into(),
            libvirt: 11_003_000,
            hypervisor: 10_000_002,
            kernel: 6_012_000,
            mdevctl: true,
        }
    }

    fn migration(address: &str, devices: Vec<(Attachment, Attachment)>) -> OutgoingMigration {
        let to = Peer { host: kilonova_ids::HostName::verbatim("there"), address: address.into() };
        let (volumes, interfaces) = (Vec::new(), Vec::new());
        OutgoingMigration { to, devices, force: false, volumes, numa: None, interfaces }
    }

    const DISK: &str = "<domain><devices><disk><backingStore/></disk>
        <disk device='cdrom'><readonly/></disk></devices></domain>";
    const OVERLAY: &str =
        "<domain><devices><disk><backingStore type='file'/></disk></devices></domain>";

    #[test]
    fn the_other_host_in_uris() {
        let request_for = |config: &LibvirtConfig, address: &str| {
            let migration = migration(address, Vec::new());
            let request =
                MigrationRequest::new(config, &versions(), &definition(), DISK, &migration);
            let request = request.expect("the request is built");
            (request.uri, request.listen_uri)
        };
        let config = LibvirtConfig::default();
        let pair = |uri: &str, listen_uri: &str| (uri.to_owned(), listen_uri.to_owned());
        let to = pair("qemu+tcp://10.0.0.2/system", "tcp://10.0.0.2");
        assert_eq!(request_for(&config, "10.0.0.2"), to);
        assert_eq!(
            request_for(&config, "fd00::2"),
            pair("qemu+tcp://[fd00::2]/system", "tcp://[fd00::2]")
        );
        assert_eq!(request_for(&config, ""), pair("qemu+tcp://there/system", "tcp://there"));
        let tls = LibvirtConfig { live_migration_scheme: "tls".into(), ..config.clone() };
        assert_eq!(request_for(&tls, "10.0.0.2").0, "qemu+tls://10.0.0.2/system");
        let own = LibvirtConfig {
            live_migration_uri: Some("qemu+ssh://nova@%s/system".into()),
            ..config
        };
        assert_eq!(request_for(&own, "10.0.0.2").0, "qemu+ssh://nova@10.0.0.2/system");
    }

    #[test]
    fn overlays_are_copied_incrementally() {
        let flags = |config: &LibvirtConfig, running: &str| {
            let migration = migration("10.0.0.2", Vec::new());
            let request =
                MigrationRequest::new(config, &versions(), &definition(), running, &migration);
            request.expect("the request is built").flags
        };
        let copies = sys::VIR_MIGRATE_NON_SHARED_DISK | sys::VIR_MIGRATE_NON_SHARED_INC;
        let config = LibvirtConfig::default();
        assert_eq!(flags(&config, DISK) & copies, sys::VIR_MIGRATE_NON_SHARED_DISK);
        assert_eq!(flags(&config, OVERLAY) & copies, sys::VIR_MIGRATE_NON_SHARED_INC);
        assert_eq!(flags(&config, "<domain/>") & copies, 0);
        let volume =
            "<disk><target dev='vdb'/><serial>aaaaaaaa-7777-4777-8777-777777777777</serial></disk>";
        let alone = format!("<domain><devices>{volume}</devices></domain>");
        assert_eq!((disk_copy(&alone), copied_disks(&alone)), (DiskCopy::None, Vec::new()));
        let beside = "<backingStore type='file'/><target dev='vda'/></disk>";
        let beside =
            OVERLAY.replace("<backingStore type='file'/></disk>", &format!("{beside}{volume}"));
        assert_eq!(disk_copy(&beside), DiskCopy::Incremental);
        assert_eq!(copied_disks(&beside), ["vda"], "volumes are not copied");
        assert_eq!(copied_disks(OVERLAY), Vec::<String>::new());
    }

    #[test]
    fn guests_with_devices_do_not_use_post_copy() {
        let mdev = |uuid: u128| Attachment::Mdev {
            uuid: uuid::Uuid::from_u128(uuid),
            parent: "mtty_mtty".into(),
            mdev_type: "mtty-1".into(),
        };
        let running = format!(
            "<domain><devices><hostdev><source><address uuid='{}'/></source></hostdev></devices></domain>",
            uuid::Uuid::from_u128(1)
        );
        let config = LibvirtConfig {
            live_migration_permit_post_copy: true,
            live_migration_permit_auto_converge: true,
            ..LibvirtConfig::default()
        };
        let post = sys::VIR_MIGRATE_POSTCOPY | sys::VIR_MIGRATE_AUTO_CONVERGE;
        let plain = migration("10.0.0.2", Vec::new());
        let request = MigrationRequest::new(&config, &versions(), &definition(), DISK, &plain);
        let request = request.expect("the request is built");
        assert_eq!((request.flags & post, request.post_copy), (post, true));
        assert_eq!(request.unused_options(&config), None);
        let with = |devices: Vec<Attachment>| changed(|config| config.devices = devices);
        let pair = migration("10.0.0.2", vec![(mdev(1), mdev(2))]);
        let request_for = |versions: &Versions| {
            MigrationRequest::new(&config, versions, &with(vec![mdev(1)]), &running, &pair)
        };
        let request = request_for(&versions()).expect("the request is built");
        assert_eq!((request.flags & post, request.post_copy), (0, false));
        assert!(
            request.unused_options(&config).is_some_and(|options| options.contains("post_copy"))
        );
        assert_eq!(request.unused_options(&LibvirtConfig::default()), None);
        assert!(request.xml.contains(&uuid::Uuid::from_u128(2).to_string()));
        let old = Versions { libvirt: 8_005_000, ..versions() };
        assert!(request_for(&old).is_err_and(|why| why.contains("libvirt is 8.5.0")));
        let whole = with(vec![Attachment::Pci { address: "0000:0c:00.0".into() }]);
        let refused = MigrationRequest::new(&config, &versions(), &whole, "<domain/>", &plain);
        assert!(refused.is_err_and(|why| why.contains("0000:0c:00.0")));
    }
}
