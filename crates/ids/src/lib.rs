//! Typed identifiers: one type for each kind of object, so that a server's UUID cannot be passed as
//! a provider's. The names that hosts and operators choose are identifiers too: [`HostName`] and
//! [`ResourceClass`]. They are here because every layer uses them, from the agent to the tables.
//!
//! Owns the identifier types only. It must never know how an object is stored or shown.

mod names;
pub mod nearness;

use newtype_uuid::{GenericUuid, TypedUuid, TypedUuidKind, TypedUuidTag};

pub use names::{HostName, InvalidName, ResourceClass};

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident, $kind:ident, $tag:literal;)*) => {$(
        #[doc = concat!("Marker for [`", stringify!($name), "`].")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $kind {}
        impl TypedUuidKind for $kind {
            fn tag() -> TypedUuidTag {
                const TAG: TypedUuidTag = TypedUuidTag::new($tag);
                TAG
            }
        }
        $(#[$doc])*
        pub type $name = TypedUuid<$kind>;
    )*};
}

kinds! {
    /// A server (Nova's instance).
    ServerId, ServerKind, "server";
    /// A resource provider in the Placement sense.
    ProviderId, ProviderKind, "resource_provider";
    /// The owner of allocations: a server or a migration.
    ConsumerId, ConsumerKind, "consumer";
    /// A physical card or function on a host.
    DeviceId, DeviceKind, "device";
    /// A part of a device that is scheduled on its own.
    DeployableId, DeployableKind, "deployable";
    /// The object that is attached to a guest: an mdev's UUID, a VF's or PF's address.
    AttachHandleId, AttachHandleKind, "attach_handle";
    /// One accelerator requested for one consumer.
    ArqId, ArqKind, "arq";
    /// A device profile.
    DeviceProfileId, DeviceProfileKind, "device_profile";
    /// An image.
    ImageId, ImageKind, "image";
    /// A compute host.
    HostId, HostKind, "host";
    /// A group of servers with an affinity policy.
    ServerGroupId, ServerGroupKind, "server_group";
    /// A network that guests are connected to.
    NetworkId, NetworkKind, "network";
    /// A range of addresses of a network.
    SubnetId, SubnetKind, "subnet";
    /// A connection to a network.
    PortId, PortKind, "port";
    /// A set of rules for the traffic of a port.
    SecurityGroupId, SecurityGroupKind, "security_group";
    /// One rule of a security group.
    SecurityGroupRuleId, SecurityGroupRuleKind, "security_group_rule";
    /// A volume of the external Cinder.
    VolumeId, VolumeKind, "volume";
    /// A snapshot of a volume.
    SnapshotId, SnapshotKind, "snapshot";
    /// An attachment of a volume to a server, as Cinder names it.
    AttachmentId, AttachmentKind, "attachment";
    /// A block device of a server: a row of ours (Nova's `bdm_uuid`).
    BlockDeviceId, BlockDeviceKind, "block_device";
    /// A router between networks.
    RouterId, RouterKind, "router";
    /// An address of an external network that stands for an address of a port.
    FloatingIpId, FloatingIpKind, "floating_ip";
    /// A durable operation.
    OperationId, OperationKind, "operation";
    /// An HTTP request, shown as `req-<uuid>`.
    RequestId, RequestKind, "request";
}

/// Returns an identifier greater than all earlier ones. It begins with the time, as version 7 of RFC 9562, so that rows
/// created together are adjacent in the indexes of a large table, while random ids would each write to a page of their
/// own. Its version number is 4, as in Nova's identifiers: gophercloud refuses scheduler hints with other versions than 1
/// to 5. Do not use it for objects whose first digits must differ, such as ports, which name their devices after them.
pub fn ascending<T: GenericUuid>() -> T {
    let id = uuid::Builder::from_u128(uuid::Uuid::now_v7().as_u128());
    T::from_untyped_uuid(id.with_version(uuid::Version::Random).into_uuid())
}

/// Parses the forms that OpenStack calls "uuid-like": 32 hex digits, with or without dashes, in
/// either case (oslo.utils `is_uuid_like`). Refuses braces and `urn:uuid:`.
pub fn parse_uuid_like<T: GenericUuid>(text: &str) -> Option<T> {
    let hex = text.bytes().filter(|b| *b != b'-').count();
    if hex != 32 || !text.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit()) {
        return None;
    }
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    uuid::Uuid::try_parse(&digits).ok().map(T::from_untyped_uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ascending_ones_ascend() {
        let mut ids: Vec<ServerId> = (0..1000).map(|_| ascending()).collect();
        let made = ids.clone();
        ids.sort_by_key(ToString::to_string);
        ids.dedup();
        assert_eq!(ids, made);
    }

    #[test]
    fn ascending_ones_have_novas_version() {
        let id: uuid::Uuid = ascending();
        assert_eq!((id.get_version_num(), id.get_variant()), (4, uuid::Variant::RFC4122));
    }

    #[test]
    fn uuid_like_accepts_both_spellings_and_nothing_else() {
        let dashed = parse_uuid_like::<ServerId>("5294f726-33d5-472a-bef1-9e19bb41626d");
        assert!(dashed.is_some());
        assert_eq!(dashed, parse_uuid_like("5294F72633D5472ABEF19E19BB41626D"));
        assert_eq!(parse_uuid_like::<ServerId>("{5294f726-33d5-472a-bef1-9e19bb41626d}"), None);
        assert_eq!(parse_uuid_like::<ServerId>("s1"), None);
    }
}
