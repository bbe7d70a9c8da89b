//! Reports of the state of a guest's volumes.

use std::path::PathBuf;

use kilonova_ids::{AttachmentId, VolumeId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::is_default;

/// The step of observations in which a volume could not be connected and its guest does not run.
pub const VOLUME_STEP: &str = "volume";

/// The state of one volume of a guest on its host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeState {
    /// The volume.
    pub volume_id: VolumeId,
    /// Its attachment; `None` if the host no longer knows it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub attachment_id: Option<AttachmentId>,
    /// Its state.
    #[serde(flatten)]
    pub status: VolumeStatus,
}

/// The states of a volume on a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum VolumeStatus {
    /// The guest has the volume, or gets it at its next start.
    Attached {
        /// The disk's name: `vdb`.
        device: String,
        /// Its location for the hypervisor.
        source: VolumeSource,
        /// Why the guest's disk does not have the document's size until the guest starts again.
        #[serde(default, skip_serializing_if = "is_default")]
        not_grown: Option<String>,
    },
    /// The document has the volume, but the guest does not. Nothing of it remains on the host.
    Failed {
        /// The reason.
        reason: String,
    },
    /// The document no longer has the volume, but the guest has not released it: it is still
    /// attached.
    Held {
        /// The disk's name.
        device: String,
        /// The reason.
        reason: String,
    },
}

/// The location of a connected volume for the hypervisor. It contains no secrets: QEMU gets them from libvirt, by the
/// UUID of a libvirt secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum VolumeSource {
    /// An RBD image, through librbd.
    Rbd {
        /// `pool/image`.
        name: String,
        /// The monitors.
        hosts: Vec<SourceHost>,
        /// The user, if the cluster authenticates.
        #[serde(default, skip_serializing_if = "is_default")]
        user: Option<String>,
        /// The libvirt secret with the user's key.
        #[serde(default, skip_serializing_if = "is_default")]
        secret: Option<Uuid>,
    },
    /// A LUN, through libiscsi.
    Iscsi {
        /// The target.
        iqn: String,
        /// The LUN.
        lun: u64,
        /// The portal.
        portal: SourceHost,
        /// The initiator's name.
        #[serde(default, skip_serializing_if = "is_default")]
        initiator: Option<String>,
        /// The CHAP user, if the target authenticates.
        #[serde(default, skip_serializing_if = "is_default")]
        user: Option<String>,
        /// The libvirt secret with the user's password.
        #[serde(default, skip_serializing_if = "is_default")]
        secret: Option<Uuid>,
    },
    /// A block device of the host.
    Block {
        /// Its path.
        path: PathBuf,
    },
    /// A file.
    File {
        /// Its path.
        path: PathBuf,
        /// Its format, `raw` or `qcow2`, which QEMU must not guess.
        format: String,
    },
}

/// A server of a [`VolumeSource`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceHost {
    /// Its name or address, without brackets.
    pub name: String,
    /// Its port.
    pub port: u16,
}
