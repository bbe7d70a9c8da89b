//! The microversions of the compute API: one constant for each change, named after it.
//!
//! Code compares a request's version with these constants and never with a number. [`MAX`] must not be used as an upper
//! bound: everything in the newest microversion exists in the next one too. (Upstream:
//! `nova/api/openstack/rest_api_version_history.rst`.)

use kilonova_wire::Microversion;

macro_rules! changes {
    ($($(#[$doc:meta])* $name:ident = $minor:literal;)*) => {$(
        $(#[$doc])*
        pub const $name: Microversion = Microversion(2, $minor);
    )*
        /// Every microversion with a change that exists here, oldest first.
        pub const ALL: &[Microversion] = &[$($name),*];
    };
}

changes! {
    /// The oldest microversion, and that of a request without a header.
    MIN = 1;
    /// Key pairs have a type.
    KEYPAIR_TYPES = 2;
    /// Administrators see the host name, the user data and the boot device.
    EXTENDED_ATTRIBUTES = 3;
    /// All users may filter servers by their IPv6 address.
    IPV6_FILTER = 5;
    /// `remote-consoles` replaces the actions that open a console.
    REMOTE_CONSOLES = 6;
    /// Only private flavors have access lists.
    PRIVATE_FLAVOR_ACCESS = 7;
    /// `remote-consoles` takes the protocol `mks`.
    MKS_CONSOLES = 8;
    /// Servers show whether they are locked.
    SHOW_LOCKED = 9;
    /// Administrators manage the key pairs of other users.
    KEYPAIRS_OF_OTHERS = 10;
    /// Administrators declare a host down.
    FORCED_DOWN = 11;
    /// Server groups show their owner.
    GROUP_OWNERS = 13;
    /// `evacuate` no longer takes `onSharedStorage`.
    NO_SHARED_STORAGE = 14;
    /// Server groups have soft policies.
    SOFT_AFFINITY = 15;
    /// Servers show the state of their host.
    HOST_STATUS = 16;
    /// `trigger_crash_dump`.
    CRASH_DUMP = 17;
    /// Servers have a description.
    DESCRIPTION = 19;
    /// Volumes of shelved servers can be attached and detached.
    SHELVED_VOLUMES = 20;
    /// The actions of deleted servers are shown.
    ACTIONS_OF_DELETED = 21;
    /// `force_complete` of a live migration.
    FORCE_COMPLETE = 22;
    /// Live migrations in progress are shown below their server.
    MIGRATIONS_OF_SERVER = 23;
    /// A live migration can be aborted.
    ABORT_LIVE_MIGRATION = 24;
    /// `block_migration` may be `auto`, and `disk_over_commit` is gone.
    BLOCK_MIGRATION_AUTO = 25;
    /// Servers have tags.
    TAGS = 26;
    /// `cpu_info` is an object.
    CPU_INFO_OBJECT = 28;
    /// `evacuate` takes `force`.
    EVACUATE_FORCE = 29;
    /// `os-migrateLive` takes `force`.
    LIVE_MIGRATE_FORCE = 30;
    /// `os-console-auth-tokens` shows tokens of every type.
    CONSOLE_AUTH_TOKENS = 31;
    /// A boot takes tags for disks and interfaces.
    DEVICE_TAGS = 32;
    /// Hypervisors are listed in pages; a boot takes no tags for disks until [`DEVICE_TAGS_AGAIN`].
    HYPERVISOR_PAGES = 33;
    /// A live migration is accepted before its host is checked.
    LIVE_MIGRATION_CHECKED_LATER = 34;
    /// Key pairs are listed in pages.
    KEYPAIR_PAGES = 35;
    /// The proxies for other services, and the limits of the network service, are gone.
    NETWORK_PROXIES_GONE = 36;
    /// A boot names its networks; it takes no tags for interfaces until [`DEVICE_TAGS_AGAIN`].
    NETWORKS_REQUIRED = 37;
    /// A filter by a nonexistent status is refused.
    STATUS_CHECKED = 38;
    /// The proxy for image metadata, and its limit, are gone.
    IMAGE_METADATA_GONE = 39;
    /// Usage is listed in pages.
    USAGE_PAGES = 40;
    /// Aggregates show their UUID.
    AGGREGATE_UUIDS = 41;
    /// A boot takes tags for disks and interfaces again.
    DEVICE_TAGS_AGAIN = 42;
    /// `os-hosts` is gone.
    HOSTS_GONE = 43;
    /// The actions that add and remove addresses are gone.
    ADDRESS_ACTIONS_GONE = 44;
    /// `createImage` and `createBackup` answer with the image's id.
    IMAGE_ID_IN_BODY = 45;
    /// Servers show their flavor as it was at their creation.
    FLAVOR_IN_SERVER = 47;
    /// Diagnostics have the same form for every driver.
    STANDARD_DIAGNOSTICS = 48;
    /// An interface or a volume can be attached with a tag.
    TAGGED_ATTACH = 49;
    /// Quota classes have limits for server groups, and no longer for networks.
    QUOTA_CLASS_GROUPS = 50;
    /// Owners see the events of an action; the event `volume-extended`.
    EVENTS_FOR_OWNERS = 51;
    /// A boot takes tags.
    TAGS_AT_BOOT = 52;
    /// Services and hypervisors are named by UUID.
    SERVICE_UUIDS = 53;
    /// `rebuild` takes a key pair.
    REBUILD_KEY = 54;
    /// Flavors have a description.
    FLAVOR_DESCRIPTION = 55;
    /// `migrate` takes a host.
    MIGRATE_TO_HOST = 56;
    /// No files are injected any more; `rebuild` takes user data.
    FILES_GONE = 57;
    /// Actions of a server are listed in pages.
    ACTION_PAGES = 58;
    /// Migrations are listed in pages.
    MIGRATION_PAGES = 59;
    /// A volume can be attached to several servers.
    MULTIATTACH = 60;
    /// Flavors show their extra specs.
    FLAVOR_EXTRA_SPECS = 61;
    /// Events show their host.
    EVENT_HOSTS = 62;
    /// A boot and a rebuild take trusted certificates.
    TRUSTED_CERTIFICATES = 63;
    /// Server groups have one policy with rules.
    GROUP_POLICY = 64;
    /// A live migration can be aborted while it is queued.
    ABORT_QUEUED = 65;
    /// Lists are filtered by `changes-before`.
    CHANGES_BEFORE = 66;
    /// A boot names the type of a volume.
    VOLUME_TYPE = 67;
    /// `evacuate` and `os-migrateLive` no longer take `force`.
    FORCE_GONE = 68;
    /// Interfaces and volumes show their tags.
    INTERFACE_TAGS = 70;
    /// Servers show their server group.
    GROUP_IN_SERVER = 71;
    /// A boot takes ports that request resources.
    PORT_RESOURCES = 72;
    /// A lock has a reason.
    LOCK_REASON = 73;
    /// A boot names its host.
    HOST_AT_BOOT = 74;
    /// Unknown query parameters are refused in most lists.
    STRICT_REQUESTS = 75;
    /// The event `power-update`.
    POWER_UPDATE_EVENT = 76;
    /// `unshelve` takes an availability zone.
    UNSHELVE_TO_ZONE = 77;
    /// Servers show their NUMA topology.
    TOPOLOGY = 78;
    /// Volumes show whether they are deleted with their server.
    VOLUME_DELETION_SHOWN = 79;
    /// Migrations show their owner.
    MIGRATION_OWNERS = 80;
    /// The event `accelerator-request-bound`.
    ACCELERATOR_EVENT = 82;
    /// All users may filter servers by more fields.
    MORE_FILTERS = 83;
    /// Events show their details.
    EVENT_DETAILS = 84;
    /// An attached volume can be changed.
    CHANGE_VOLUME = 85;
    /// Extra specs are checked.
    EXTRA_SPECS_CHECKED = 86;
    /// A volume-backed server can be rescued.
    RESCUE_OF_VOLUMES = 87;
    /// A hypervisor shows its uptime; search and `uptime` are gone.
    HYPERVISOR_UPTIME = 88;
    /// Attached volumes show the id of their attachment instead of their own.
    ATTACHMENT_IDS = 89;
    /// All users see and set the host name.
    HOSTNAME = 90;
    /// `unshelve` takes a host, and can unpin the zone.
    UNSHELVE_TO_HOST = 91;
    /// Key pairs are imported and no longer generated.
    KEYPAIR_IMPORT_ONLY = 92;
    /// The event `volume-reimaged`.
    VOLUME_REIMAGED_EVENT = 93;
    /// A host name may be fully qualified.
    FQDN_HOSTNAME = 94;
    /// Evacuated servers stay stopped.
    EVACUATED_STAY_STOPPED = 95;
    /// Servers show the zone to which they are pinned.
    PINNED_ZONE = 96;
    /// Servers have shares of Manila.
    SHARES = 97;
    /// Servers show the properties of their image.
    IMAGE_PROPERTIES = 98;
    /// `remote-consoles` takes the type `spice-direct`.
    SPICE_DIRECT = 99;
    /// Servers show their scheduler hints.
    SCHEDULER_HINTS = 100;
    /// The answer to a request that attaches a volume has no body.
    ATTACH_WITHOUT_BODY = 101;
    /// Unknown query parameters are refused everywhere; flavors lose `rxtx_factor`.
    STRICT_QUERIES = 102;
    /// `os-volumes_boot` is gone.
    VOLUMES_BOOT_GONE = 103;
    /// The zone to which a server is pinned can be changed.
    CHANGE_PINNED_ZONE = 104;
}

/// The newest microversion, unless [`crate::Options::newest_microversion`] overrides it.
pub const MAX: Microversion = CHANGE_PINNED_ZONE;

/// The microversions in which a method, an action or a field exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The microversion that introduces it.
    pub first: Microversion,
    /// The microversion that removes it.
    pub gone: Option<Microversion>,
}

/// Exists in every microversion.
pub const ALWAYS: Span = since(MIN);

/// Exists from a microversion on.
pub const fn since(first: Microversion) -> Span {
    Span { first, gone: None }
}

/// Exists until a microversion removes it.
pub const fn before(gone: Microversion) -> Span {
    between(MIN, gone)
}

/// Exists from a microversion on until another removes it.
pub const fn between(first: Microversion, gone: Microversion) -> Span {
    Span { first, gone: Some(gone) }
}

impl Span {
    /// True if the method, action or field exists in a microversion.
    pub fn has(self, version: Microversion) -> bool {
        version >= self.first && self.gone.is_none_or(|gone| version < gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_ends_before_the_microversion_that_removes_it() {
        assert!(ALL.is_sorted() && ALL.last() == Some(&MAX));
        let next = Microversion(MAX.0, MAX.1 + 1);
        assert!(ALWAYS.has(MIN) && ALWAYS.has(next));
        assert!(!since(TAGS).has(BLOCK_MIGRATION_AUTO));
        assert!(since(TAGS).has(TAGS) && since(TAGS).has(next));
        assert!(before(FORCE_GONE).has(VOLUME_TYPE) && !before(FORCE_GONE).has(FORCE_GONE));
    }
}
