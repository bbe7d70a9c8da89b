//! Connections of volumes to hosts, parsed from Cinder's `connection_info`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::{Secret, SourceHost};
use crate::is_default;

/// The limits of a front-end QoS, which are libvirt's `<iotune>` elements.
pub const IO_LIMITS: [&str; 13] = [
    "total_bytes_sec",
    "read_bytes_sec",
    "write_bytes_sec",
    "total_iops_sec",
    "read_iops_sec",
    "write_iops_sec",
    "total_bytes_sec_max",
    "read_bytes_sec_max",
    "write_bytes_sec_max",
    "total_iops_sec_max",
    "read_iops_sec_max",
    "write_iops_sec_max",
    "size_iops_sec",
];

/// The connection of a volume to a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// The protocol with its addresses.
    #[serde(flatten)]
    pub target: Target,
    /// True if the guest must not write to it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub readonly: bool,
    /// True if the backend frees discarded blocks.
    #[serde(default, skip_serializing_if = "is_default")]
    pub discard: bool,
    /// Limits of the guest's I/O; the names are among [`IO_LIMITS`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub qos: BTreeMap<String, u64>,
    /// The logical block size that the guest sees, in bytes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub logical_block_size: Option<u32>,
    /// The physical block size that the guest sees, in bytes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub physical_block_size: Option<u32>,
}

/// The protocols.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "protocol", rename_all = "snake_case")]
pub enum Target {
    /// A Ceph RBD image.
    Rbd(Rbd),
    /// An iSCSI LUN.
    Iscsi(Iscsi),
    /// A file on an NFS export.
    Nfs(Nfs),
    /// A namespace of NVMe over Fabrics.
    Nvmeof(Nvmeof),
    /// A block device of the host itself.
    Local {
        /// Its path.
        device_path: String,
    },
    /// A protocol of a newer controller that this host does not know.
    #[serde(other)]
    Unknown,
}

/// A Ceph RBD image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rbd {
    /// `pool/image`.
    pub name: String,
    /// The monitors. Without them, the host's `ceph.conf` names them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hosts: Vec<SourceHost>,
    /// True if the cluster authenticates.
    #[serde(default, skip_serializing_if = "is_default")]
    pub auth: bool,
    /// The user, unless the host's options name one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub user: Option<String>,
    /// The libvirt secret with the user's key, unless the host's options name one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub secret: Option<Uuid>,
}

/// An iSCSI LUN.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Iscsi {
    /// The paths to it, at least one. A host without multipath uses the first working one.
    pub paths: Vec<IscsiPath>,
    /// The login at the target.
    #[serde(default, skip_serializing_if = "is_default")]
    pub chap: Option<Chap>,
}

/// A path to a LUN.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct IscsiPath {
    /// `address:port`, with brackets around an IPv6 address.
    pub portal: String,
    /// The target.
    pub iqn: String,
    /// The LUN.
    pub lun: u64,
}

/// A CHAP login.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chap {
    /// The user.
    pub user: String,
    /// The password.
    #[serde(default, skip_serializing_if = "Secret::is_empty")]
    pub password: Secret,
}

/// A file on an NFS export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nfs {
    /// `server:/path`.
    pub export: String,
    /// Name of the file below the export.
    pub name: String,
    /// Options of the mount.
    #[serde(default, skip_serializing_if = "is_default")]
    pub options: Option<String>,
    /// The file's format: `raw` or `qcow2`.
    pub format: String,
}

/// A namespace of NVMe over Fabrics.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nvmeof {
    /// The subsystem.
    pub nqn: String,
    /// The namespace's UUID.
    #[serde(default, skip_serializing_if = "is_default")]
    pub uuid: Option<Uuid>,
    /// The namespace's number, if it has no UUID.
    #[serde(default, skip_serializing_if = "is_default")]
    pub namespace: Option<u64>,
    /// The portals, at least one.
    pub portals: Vec<NvmePortal>,
}

/// A portal of an NVMe subsystem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NvmePortal {
    /// Its address.
    pub address: String,
    /// Its port.
    pub port: u16,
    /// `tcp` or `rdma`.
    pub transport: String,
}

/// The reason why Kilonova cannot connect a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectionError {
    /// It is encrypted.
    Encrypted,
    /// Its protocol is not supported.
    Unsupported(String),
    /// `connection_info` lacks a key.
    Missing(&'static str),
    /// A key of `connection_info` is invalid.
    Invalid(&'static str),
}

impl std::fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Encrypted => f.write_str("encrypted volumes are not supported"),
            Self::Unsupported(protocol) => {
                write!(f, "volumes of type {} are not supported", protocol.escape_debug())
            }
            Self::Missing(key) => write!(f, "the connection_info of Cinder has no {key}"),
            Self::Invalid(key) => {
                write!(f, "the {key} in the connection_info of Cinder is invalid")
            }
        }
    }
}

impl std::error::Error for ConnectionError {}

impl Connection {
    /// Parses the `connection_info` of an attachment. The data may be next to the type, as Cinder
    /// writes it, or below `data`, as older versions did.
    ///
    /// # Errors
    /// [`ConnectionError`] for an encrypted, unsupported or incomplete connection. It contains no
    /// value that could be a secret.
    pub fn parse(info: &Value) -> Result<Self, ConnectionError> {
        let kind = text(info, "driver_volume_type")?;
        let data = info.get("data").filter(|data| data.is_object()).unwrap_or(info);
        if data.get("encrypted").and_then(Value::as_bool) == Some(true) {
            return Err(ConnectionError::Encrypted);
        }
        let target = match kind {
            "rbd" => Target::Rbd(rbd(data)?),
            "iscsi" => Target::Iscsi(iscsi(data)?),
            "nfs" => Target::Nfs(nfs(data)?),
            "nvmeof" => Target::Nvmeof(nvmeof(data)?),
            "local" => Target::Local { device_path: local(data)? },
            other => return Err(ConnectionError::Unsupported(other.to_owned())),
        };
        Ok(Self {
            target,
            readonly: data.get("access_mode").and_then(Value::as_str) == Some("ro"),
            discard: data.get("discard").and_then(Value::as_bool).unwrap_or_default(),
            qos: qos(data)?,
            logical_block_size: size(data, "logical_block_size")?,
            physical_block_size: size(data, "physical_block_size")?,
        })
    }

    /// The connection without its secrets.
    #[must_use]
    pub fn without_secrets(&self) -> Self {
        let mut plain = self.clone();
        if let Target::Iscsi(Iscsi { chap: Some(chap), .. }) = &mut plain.target {
            chap.password = Secret::default();
        }
        plain
    }
}

/// A string that may be part of a command line or a path: not empty, without spaces and control
/// characters, and not an option.
fn text<'a>(data: &'a Value, key: &'static str) -> Result<&'a str, ConnectionError> {
    optional(data, key)?.ok_or(ConnectionError::Missing(key))
}

fn optional<'a>(data: &'a Value, key: &'static str) -> Result<Option<&'a str>, ConnectionError> {
    match data.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if is_plain(text) => Ok(Some(text)),
        Some(_) => Err(ConnectionError::Invalid(key)),
    }
}

fn is_plain(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('-')
        && !text.chars().any(|c| c.is_control() || c.is_whitespace())
}

/// A number that drivers write as a JSON number or as a string.
fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.trim().parse().ok())
}

fn port(value: &Value) -> Option<u16> {
    u16::try_from(number(value)?).ok().filter(|port| *port > 0)
}

fn list<'a>(data: &'a Value, key: &str) -> &'a [Value] {
    data.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn size(data: &Value, key: &'static str) -> Result<Option<u32>, ConnectionError> {
    match data.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            let bytes = number(value).and_then(|bytes| u32::try_from(bytes).ok());
            let bytes = bytes.filter(|bytes| bytes.is_power_of_two() && *bytes >= 512);
            bytes.map(Some).ok_or(ConnectionError::Invalid(key))
        }
    }
}

/// The limits that the hypervisor applies. Other keys are for backends.
fn qos(data: &Value) -> Result<BTreeMap<String, u64>, ConnectionError> {
    let Some(specs) = data.get("qos_specs").and_then(Value::as_object) else {
        return Ok(BTreeMap::new());
    };
    let known = IO_LIMITS.iter().filter_map(|name| Some((*name, specs.get(*name)?)));
    known
        .map(|(name, value)| {
            let value = number(value).ok_or(ConnectionError::Invalid("qos_specs"))?;
            Ok((name.to_owned(), value))
        })
        .collect()
}

fn rbd(data: &Value) -> Result<Rbd, ConnectionError> {
    let name = text(data, "name")?;
    if !name.split_once('/').is_some_and(|(pool, image)| !pool.is_empty() && !image.is_empty()) {
        return Err(ConnectionError::Invalid("name"));
    }
    let (hosts, ports) = (list(data, "hosts"), list(data, "ports"));
    if hosts.len() != ports.len() {
        return Err(ConnectionError::Invalid("ports"));
    }
    let hosts = hosts.iter().zip(ports).map(|(host, number)| {
        let host = host.as_str().map(|host| host.trim_matches(['[', ']']));
        let host = host.filter(|host| is_plain(host)).ok_or(ConnectionError::Invalid("hosts"))?;
        let port = port(number).ok_or(ConnectionError::Invalid("ports"))?;
        Ok(SourceHost { name: host.to_owned(), port })
    });
    let secret = match optional(data, "secret_uuid")? {
        None => None,
        Some(uuid) => {
            Some(Uuid::try_parse(uuid).map_err(|_| ConnectionError::Invalid("secret_uuid"))?)
        }
    };
    Ok(Rbd {
        name: name.to_owned(),
        hosts: hosts.collect::<Result<_, _>>()?,
        auth: data.get("auth_enabled").and_then(Value::as_bool).unwrap_or_default(),
        user: optional(data, "auth_username")?.map(str::to_owned),
        secret,
    })
}

fn iscsi(data: &Value) -> Result<Iscsi, ConnectionError> {
    let portals = list(data, "target_portals");
    let (iqns, luns) = (list(data, "target_iqns"), list(data, "target_luns"));
    let paths = if portals.is_empty() {
        let lun = data.get("target_lun").ok_or(ConnectionError::Missing("target_lun"))?;
        vec![iscsi_path(text(data, "target_portal")?, text(data, "target_iqn")?, lun)?]
    } else {
        if iqns.len() != portals.len() {
            return Err(ConnectionError::Invalid("target_iqns"));
        }
        if luns.len() != portals.len() {
            return Err(ConnectionError::Invalid("target_luns"));
        }
        let all = portals.iter().zip(iqns).zip(luns);
        let all = all.map(|((portal, iqn), lun)| {
            let portal = portal.as_str().ok_or(ConnectionError::Invalid("target_portals"))?;
            let iqn = iqn.as_str().ok_or(ConnectionError::Invalid("target_iqns"))?;
            iscsi_path(portal, iqn, lun)
        });
        all.collect::<Result<_, _>>()?
    };
    let chap = match optional(data, "auth_method")? {
        None => None,
        Some("CHAP") => {
            let user = text(data, "auth_username")?.to_owned();
            let password = data.get("auth_password").and_then(Value::as_str);
            let password = password.filter(|one| !one.is_empty() && !one.contains(['\0', '\n']));
            let password = password.ok_or(ConnectionError::Missing("auth_password"))?;
            Some(Chap { user, password: Secret::new(password) })
        }
        Some(_) => return Err(ConnectionError::Invalid("auth_method")),
    };
    Ok(Iscsi { paths, chap })
}

fn iscsi_path(portal: &str, iqn: &str, lun: &Value) -> Result<IscsiPath, ConnectionError> {
    let (portal, iqn) = (portal.to_owned(), iqn.to_owned());
    let path =
        IscsiPath { portal, iqn, lun: number(lun).ok_or(ConnectionError::Invalid("target_lun"))? };
    if path.host().is_none() {
        return Err(ConnectionError::Invalid("target_portal"));
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || ".-:_".contains(c);
    if !is_plain(&path.iqn) || !path.iqn.chars().all(is_name) {
        return Err(ConnectionError::Invalid("target_iqn"));
    }
    Ok(path)
}

impl IscsiPath {
    /// The address and the port of the portal; `None` if it is not `address:port`.
    pub fn host(&self) -> Option<SourceHost> {
        // A portal group tag may follow.
        let portal = self.portal.split_once(',').map_or(&*self.portal, |(portal, _)| portal);
        let (name, port) = portal.rsplit_once(':')?;
        let name = match name.strip_prefix('[') {
            Some(six) => six.strip_suffix(']')?,
            None => name,
        };
        let is_address = |c: char| c.is_ascii_alphanumeric() || ".-:%_".contains(c);
        let is_valid = is_plain(name) && name.chars().all(is_address);
        let port = port.parse().ok().filter(|port| *port > 0 && is_valid)?;
        Some(SourceHost { name: name.to_owned(), port })
    }
}

fn nfs(data: &Value) -> Result<Nfs, ConnectionError> {
    let (export, name) = (text(data, "export")?, text(data, "name")?);
    if !export.contains(":/") {
        return Err(ConnectionError::Invalid("export"));
    }
    if name.contains('/') || name.starts_with('.') {
        return Err(ConnectionError::Invalid("name"));
    }
    let format = match optional(data, "format")? {
        None | Some("raw") => "raw",
        Some("qcow2") => "qcow2",
        Some(_) => return Err(ConnectionError::Invalid("format")),
    };
    let options = match data.get("options") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.trim()).filter(|text| !text.is_empty()),
        Some(_) => return Err(ConnectionError::Invalid("options")),
    };
    Ok(Nfs {
        export: export.to_owned(),
        name: name.to_owned(),
        options: options.map(str::to_owned),
        format: format.to_owned(),
    })
}

fn nvmeof(data: &Value) -> Result<Nvmeof, ConnectionError> {
    if !list(data, "volume_replicas").is_empty() {
        return Err(ConnectionError::Unsupported("nvmeof with replicas".to_owned()));
    }
    let nqn = match optional(data, "target_nqn")? {
        Some(nqn) => nqn,
        None => text(data, "nqn")?,
    };
    let uuid = match optional(data, "vol_uuid")? {
        None => None,
        Some(uuid) => {
            Some(Uuid::try_parse(uuid).map_err(|_| ConnectionError::Invalid("vol_uuid"))?)
        }
    };
    let portals = list(data, "portals");
    let portals = if portals.is_empty() {
        let number = data.get("target_port").ok_or(ConnectionError::Missing("target_port"))?;
        let transport = optional(data, "transport_type")?.unwrap_or("tcp");
        vec![nvme_portal(text(data, "target_portal")?, number, transport)?]
    } else {
        let all = portals.iter().map(|portal| {
            let part = |at: usize| portal.get(at);
            let invalid = || ConnectionError::Invalid("portals");
            let address = part(0).and_then(Value::as_str).ok_or_else(invalid)?;
            let transport = part(2).and_then(Value::as_str).unwrap_or("tcp");
            nvme_portal(address, part(1).ok_or_else(invalid)?, transport)
        });
        all.collect::<Result<_, _>>()?
    };
    let namespace = data.get("ns_id").and_then(number);
    if uuid.is_none() && namespace.is_none() {
        return Err(ConnectionError::Missing("vol_uuid"));
    }
    Ok(Nvmeof { nqn: nqn.to_owned(), uuid, namespace, portals })
}

fn nvme_portal(
    address: &str,
    number: &Value,
    transport: &str,
) -> Result<NvmePortal, ConnectionError> {
    let transport = match transport.to_ascii_lowercase().as_str() {
        "tcp" => "tcp",
        // Cinder's older name for RDMA over converged Ethernet.
        "rdma" | "rocev2" => "rdma",
        _ => return Err(ConnectionError::Invalid("transport_type")),
    };
    let port = port(number).ok_or(ConnectionError::Invalid("target_port"))?;
    if !is_plain(address) {
        return Err(ConnectionError::Invalid("target_portal"));
    }
    Ok(NvmePortal { address: address.to_owned(), port, transport: transport.to_owned() })
}

fn local(data: &Value) -> Result<String, ConnectionError> {
    let path = text(data, "device_path")?;
    if !path.starts_with("/dev/") || path.split('/').any(|part| part == "..") {
        return Err(ConnectionError::Invalid("device_path"));
    }
    Ok(path.to_owned())
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
