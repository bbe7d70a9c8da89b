//! Documents: the desired state.

use kilonova_ids::{HostName, ImageId, OperationId, ServerId};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use crate::{
    Attachment, Bus, ConsoleRequest, Filters, GuestMetadata, GuestNuma, Interface, Machine, Medium,
    Order, Question, Router, Volume, VolumeState, is_default,
};

/// The desired state of one server on one host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// The server.
    pub server: ServerId,
    /// Increases with every change on the host; an agent acts only on the newest.
    pub generation: i64,
    /// The desired state.
    pub desired: Desired,
}

/// The server as it should be on the host: present or absent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Desired {
    /// It exists as described.
    Present(Box<Domain>),
    /// It does not exist: the domain, its disks and its mediated devices are removed.
    Absent,
}

/// The desired state of a guest.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Domain {
    /// The configuration that libvirt defines the domain from.
    #[serde(flatten)]
    pub config: DomainConfig,
    /// The desired power state.
    pub power: Power,
    /// True if a guest that is shut off starts with its vCPUs stopped instead of running, because its ports are not
    /// plugged yet, and stays so until a later document changes it. A guest that already runs keeps running. Only
    /// meaningful with [`Power::On`]. Agents of earlier versions start the guest.
    #[serde(default)]
    pub starts_paused: bool,
    /// True if the host already has the guest's disks. A host without the guest and without its root disk then fails
    /// instead of creating an empty guest. Agents of earlier versions create it.
    ///
    /// A document that creates a guest on a host does not have it, such as that of a boot, a move, a rebuild or a hard
    /// reboot; the next start, stop or change in place sets it. Once the server is built, a complete batch has it in every
    /// document. A host that has carried out a document takes it as set.
    #[serde(default)]
    pub existing: bool,
    /// The last one-shot verb; it is carried out once per operation id.
    pub verb: Option<(OperationId, Verb)>,
    /// The host that has the guest or its disks. Before the domain is first defined, the agent
    /// fetches from there the files that a live migration does not transfer. Ignored if the host must have the guest
    /// ([`Domain::requires_guest`]).
    #[serde(default)]
    pub from: Option<Peer>,
    /// The live migration to carry out. Without it, a running migration is aborted.
    #[serde(rename = "departure", default)]
    pub outgoing_migration: Option<Box<OutgoingMigration>>,
    /// The machine type that another host chose for the guest, for a host that has no domain of it. Ignored if the
    /// configuration names a machine type. Agents of earlier versions choose their own.
    #[serde(default)]
    pub kept_machine_type: Option<String>,
}

impl Domain {
    /// Requires the guest's disks on the host: they are neither created nor fetched again.
    pub fn require_guest(&mut self) {
        self.existing = true;
        self.from = None;
    }

    /// True if the disks are neither created nor fetched. Only the disks of an incoming guest are still transferred.
    pub fn requires_guest(&self) -> bool {
        self.existing && self.power != Power::Incoming
    }
}

/// A domain's configuration: the guest's names, size, disks and devices. A document requests it,
/// and the domain's XML records it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct DomainConfig {
    /// `instance-0000001a`.
    pub name: String,
    /// The server's name.
    pub display_name: String,
    /// Number of vCPUs.
    pub vcpus: i64,
    /// Memory, MiB.
    pub memory_mb: i64,
    /// The disks.
    pub boot: Boot,
    /// Hardware properties beyond the size.
    #[serde(default)]
    pub machine: Machine,
    /// The metadata on the guest's config drive.
    #[serde(default)]
    pub guest: GuestMetadata,
    /// All attached devices.
    pub devices: Vec<Attachment>,
    /// All network interfaces.
    #[serde(default)]
    pub interfaces: Vec<Interface>,
    /// The rescue configuration, while the server is rescued. The guest boots from the rescue
    /// image; its own disk is also attached and keeps its content.
    #[serde(default)]
    pub rescue: Option<Rescue>,
    /// All volumes.
    #[serde(default)]
    pub volumes: Vec<Volume>,
    /// The NUMA cells; `None` for a guest on any of the host's shared CPUs. Only hosts with the trait
    /// [`GUEST_NUMA`](crate::GUEST_NUMA) get it.
    #[serde(default)]
    pub numa: Option<Box<GuestNuma>>,
}

/// Writes the members in the order of earlier builds, so that reading and rewriting a stored
/// document yields the same bytes. A flattened configuration would change the order.
impl Serialize for Domain {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self {
            config,
            power,
            starts_paused,
            existing,
            verb,
            from,
            outgoing_migration,
            kept_machine_type,
        } = self;
        let DomainConfig {
            name,
            display_name,
            vcpus,
            memory_mb,
            boot,
            machine,
            guest,
            devices,
            interfaces,
            rescue,
            volumes,
            numa,
        } = config;
        let mut members = serializer.serialize_map(None)?;
        members.serialize_entry("name", name)?;
        members.serialize_entry("display_name", display_name)?;
        members.serialize_entry("vcpus", vcpus)?;
        members.serialize_entry("memory_mb", memory_mb)?;
        members.serialize_entry("boot", boot)?;
        entry_unless_default(&mut members, "machine", machine)?;
        entry_unless_default(&mut members, "guest", guest)?;
        members.serialize_entry("power", power)?;
        entry_unless_default(&mut members, "starts_paused", starts_paused)?;
        entry_unless_default(&mut members, "existing", existing)?;
        members.serialize_entry("verb", verb)?;
        members.serialize_entry("devices", devices)?;
        entry_unless_default(&mut members, "interfaces", interfaces)?;
        entry_unless_default(&mut members, "from", from)?;
        entry_unless_default(&mut members, "departure", outgoing_migration)?;
        entry_unless_default(&mut members, "rescue", rescue)?;
        entry_unless_default(&mut members, "volumes", volumes)?;
        entry_unless_default(&mut members, "numa", numa)?;
        entry_unless_default(&mut members, "kept_machine_type", kept_machine_type)?;
        members.end()
    }
}

fn entry_unless_default<M: SerializeMap, T: Serialize + Default + PartialEq>(
    members: &mut M,
    name: &str,
    value: &T,
) -> Result<(), M::Error> {
    if is_default(value) { Ok(()) } else { members.serialize_entry(name, value) }
}

/// A rescue configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rescue {
    /// The rescue image.
    pub image: Option<ImageId>,
    /// How a stable device rescue attaches the image: after the guest's own disks, which keep their
    /// positions. Without it, the rescue disk takes the first position and the root disk the
    /// second.
    #[serde(default, skip_serializing_if = "is_default")]
    pub device: Option<RescueDevice>,
    /// The hardware properties during the rescue.
    #[serde(default, skip_serializing_if = "is_default")]
    pub machine: Machine,
}

/// How a rescue disk is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RescueDevice {
    /// Its type (`hw_rescue_device`).
    pub medium: Medium,
    /// Its bus, if given (`hw_rescue_bus`).
    #[serde(default, skip_serializing_if = "is_default")]
    pub bus: Option<Bus>,
}

/// The disks of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boot {
    /// The image; its bytes come from the image service. A volume-backed guest has none.
    pub image: Option<ImageId>,
    /// Root disk, GiB.
    pub root_gb: i64,
    /// Ephemeral disk, GiB.
    pub ephemeral_gb: i64,
    /// Swap, MiB.
    pub swap_mb: i64,
    /// The rebuild that the disks belong to. Disks of an earlier rebuild are replaced, once. A host that has begun a later
    /// rebuild of the guest refuses a document with an earlier one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebuilt: Option<OperationId>,
}

/// The desired power state of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Power {
    /// It runs.
    On,
    /// It is in memory with its vCPUs stopped.
    Paused,
    /// Its memory is saved to disk.
    Suspended,
    /// It is defined and shut off.
    Off,
    /// Everything is ready for the guest of an incoming live migration.
    Incoming,
    /// The guest stays unchanged. A running live migration is aborted; otherwise the agent only
    /// reports the guest's state, which is [`Absent`](crate::Outcome::Absent) without a domain.
    AsIs,
}

/// Another host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Its name.
    pub host: HostName,
    /// Its address.
    pub address: String,
}

/// A live migration to a host that is ready for the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutgoingMigration {
    /// The destination.
    pub to: Peer,
    /// Each device and its replacement on the destination.
    pub devices: Vec<(Attachment, Attachment)>,
    /// True to complete the migration even if the guest has to be paused for it.
    pub force: bool,
    /// The volumes as the destination has reported them: where its hypervisor finds each.
    #[serde(default, skip_serializing_if = "is_default")]
    pub volumes: Vec<VolumeState>,
    /// The NUMA cells on the destination; `None` for a guest without them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub numa: Option<Box<GuestNuma>>,
    /// The interfaces that the destination connects differently from the source.
    #[serde(default, skip_serializing_if = "is_default")]
    pub interfaces: Vec<Interface>,
}

/// One-shot verbs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Reboot the guest by ACPI; hard after a timeout.
    RebootSoft,
    /// Destroy, define and start the domain.
    RebootHard,
    /// Upload a snapshot of the root disk to the image service, once the guest is in its desired
    /// state.
    Snapshot {
        /// The image that receives the snapshot.
        image: ImageId,
    },
    /// A verb that the driver carries out in one call.
    #[serde(untagged)]
    Guest(GuestVerb),
}

macro_rules! guest_verbs {
    ($($(#[$doc:meta])* $verb:ident = $name:literal,)*) => {
        /// One-shot verbs that the driver carries out in one call. The guest must be up, and keeps its
        /// power state.
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
        )]
        pub enum GuestVerb {
            $($(#[$doc])* #[serde(rename = $name)] $verb,)*
        }

        impl GuestVerb {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$verb,)*];

            /// The name in documents, and of the step in observations.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$verb => $name,)*
                }
            }
        }
    };
}

guest_verbs! {
    /// Inject an NMI so that the guest writes a crash dump.
    CrashDump = "crash_dump",
}

/// The documents newer than a generation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// The newest generation of the host, and the next `since`.
    pub generation: i64,
    /// True if these are all documents of the host (`since = 0`). A domain without a document is
    /// then reported, not destroyed.
    pub complete: bool,
    /// The documents, oldest first.
    pub documents: Vec<Document>,
    /// With `complete`, the servers whose documents are held back: the host leaves them unchanged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<ServerId>,
    /// Device orders, oldest first; with `complete`, all unfinished orders.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub orders: Vec<Order>,
    /// Open questions about guests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<Question>,
    /// Requests for consoles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub consoles: Vec<ConsoleRequest>,
    /// The complete packet filters of the host's guests, if they or the guests have changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filters: Option<Box<Filters>>,
    /// The complete list of the host's routers, if it may have changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routers: Option<Vec<Router>>,
    /// True if the host's providers may no longer be as it has reported them: the host registers again at its next scan
    /// of its devices. Agents of earlier builds ignore it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub register: bool,
}
