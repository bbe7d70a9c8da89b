//! The documents that travel between the controller and an agent.
//!
//! They are level-triggered: a document describes the desired state ("this domain, running, with
//! these devices, generation 7"), never a command. An agent may miss any number of documents and is
//! correct after the next. A one-shot verb carries an operation id, and the agent remembers the
//! last id that it carried out. An agent never chooses a device; the document names each.
//!
//! This crate must never know how either side stores or carries out documents.

#[macro_use]
mod words;

mod cells;
mod console;
mod control;
mod device;
mod disk;
mod document;
mod filter;
mod guest;
mod interface;
mod join;
mod machine;
mod numa;
mod observation;
mod order;
mod question;
mod router;
mod volume;

pub use cells::{NumaCell, NumaPages};
pub use console::{
    CONSOLE_PROTOCOL, ConsoleAnswer, ConsoleKind, ConsoleProblem, ConsoleRefusal, ConsoleReply,
    ConsoleRequest, ControllerUrls,
};
pub use control::{ControlFuture, ControlPlane, Refusal};
pub use device::{
    Attachment, Attempt, Deployable, Device, DeviceKind, GpuInstance, HandleSlot, Health, Mig,
    MigPlacement, MigProfile, Registration, Session, VARIANT_LIVE_MIGRATION, VGPU_LIVE_MIGRATION,
};
pub use disk::DiskFormat;
pub use document::{
    Batch, Boot, Desired, Document, Domain, DomainConfig, GuestVerb, OutgoingMigration, Peer,
    Power, Rescue, RescueDevice, Verb,
};
pub use filter::{
    AllowedAddressPair, Direction, FilterGroup, FilterGroupMembers, FilterRule, Filters,
    PortFilter, Prefix, Remote,
};
pub use guest::{
    GuestMetadata, ImageNumbers, InjectedFile, Key, PasswordAnswer, PasswordRequest,
    VendordataAnswer, VendordataRequest,
};
pub use interface::{Address, Interface, MacvtapMode, OVS_HYBRID_PLUG, Vif, link_local};
pub use join::{Authorities, Clock, Credential, Join, Renewal, Revocations, RevokedHost};
pub use machine::{Bus, Firmware, Machine, Medium, SecureBoot, Topology};
pub use numa::{GUEST_DEVICE_CELLS, GUEST_NUMA, GuestNuma, GuestNumaCell, GuestVcpu};
pub use observation::{
    DESTROY_STEP, NO_DISK_STEP, Observation, Outcome, Phase, Progress, REBUILT_STEP, REMOVED_STEP,
    SNAPSHOT_STEP,
};
pub use order::{
    CLEANED_BY_AGENT, CLEANED_BY_OPERATOR, Chunk, End, ON_RELEASE, Order, OrderResult, Task,
};
pub use question::{DiskUsage, Question, Reply, ReplyBody, Topic, Usage};
pub use router::{FloatingAddress, Router, RouterAddress, RouterInterface, SixMode};
pub use volume::{
    Chap, Connection, ConnectionError, Connector, IO_LIMITS, Iscsi, IscsiPath, Nfs, NvmePortal,
    Nvmeof, Rbd, Secret, SourceHost, Target, VOLUME_STEP, Volume, VolumeSource, VolumeState,
    VolumeStatus,
};

/// True if serialization omits the value.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
