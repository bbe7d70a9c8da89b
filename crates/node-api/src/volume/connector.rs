//! Connectors: the properties of a host that are sent to Cinder.

use serde::{Deserialize, Serialize};

use crate::is_default;

/// The properties of a host by which a storage backend identifies it, named as in Cinder's API: the
/// controller adds `mountpoint` and does not change the rest. A property that a host does not
/// have is omitted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Connector {
    /// The host's name.
    pub host: String,
    /// Its address in the storage network.
    #[serde(skip_serializing_if = "is_default")]
    pub ip: Option<String>,
    /// Architecture: `x86_64`.
    #[serde(skip_serializing_if = "is_default")]
    pub platform: Option<String>,
    /// `linux`.
    #[serde(skip_serializing_if = "is_default")]
    pub os_type: Option<String>,
    /// Name of its iSCSI initiator.
    #[serde(skip_serializing_if = "is_default")]
    pub initiator: Option<String>,
    /// True if it connects volumes over several paths.
    pub multipath: bool,
    /// True if the host rejects a volume with a single path.
    #[serde(skip_serializing_if = "is_default")]
    pub enforce_multipath: bool,
    /// True if a volume on the host itself may be used without an export.
    pub do_local_attach: bool,
    /// Its NVMe qualified name.
    #[serde(skip_serializing_if = "is_default")]
    pub nqn: Option<String>,
    /// Its NVMe host id.
    #[serde(skip_serializing_if = "is_default")]
    pub nvme_hostid: Option<String>,
    /// True if its kernel combines the paths of an NVMe namespace.
    #[serde(skip_serializing_if = "is_default")]
    pub nvme_native_multipath: Option<bool>,
    /// The machine's UUID.
    #[serde(rename = "system uuid", skip_serializing_if = "is_default")]
    pub system_uuid: Option<String>,
    /// Port names of its Fibre Channel adapters.
    #[serde(skip_serializing_if = "is_default")]
    pub wwpns: Vec<String>,
    /// Node names of its Fibre Channel adapters.
    #[serde(skip_serializing_if = "is_default")]
    pub wwnns: Vec<String>,
}
