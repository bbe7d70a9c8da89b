//! The values of the ledger's enumerated columns. An unknown value is an error.

use std::fmt;

use kilonova_node_api::DeviceKind;
use kilonova_store::{Error, Row, Value};
use serde::Serialize;

/// Reads a column with `parse`. A value that `parse` does not recognize is an error.
fn read<T>(
    row: &Row,
    column: &str,
    name: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<T, Error> {
    let word = row.text(column)?;
    parse(word).ok_or_else(|| Error::Shape(format!("column {column}: unknown {name} {word:?}")))
}

/// Reads the kind of a device.
pub(crate) fn device_kind(row: &Row, column: &str) -> Result<DeviceKind, Error> {
    read(row, column, "DeviceKind", DeviceKind::parse)
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$item:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        pub enum $name { $($(#[$item])* #[serde(rename = $word)] $variant,)* }

        impl $name {
            /// All values.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name in the database and in answers.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// Parses the name.
            pub fn parse(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)* _ => None }
            }

            /// Reads a column.
            #[allow(dead_code)]
            pub(crate) fn read(row: &Row, column: &str) -> Result<Self, Error> {
                read(row, column, stringify!($name), Self::parse)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl From<$name> for Value {
            fn from(word: $name) -> Self {
                word.as_str().into()
            }
        }
    };
}

words! {
    /// How a handle is attached to a guest. The handles of a new device are sorted by these variants.
    AttachType {
        /// A mediated device, which the agent creates.
        Mdev = "MDEV",
        /// A PCI function, passed through.
        Pci = "PCI",
        /// A function that exists in tests only.
        TestPci = "TEST_PCI",
        /// A function that keeps its driver and becomes a vGPU (VFIO).
        Vfio = "VFIO",
    }
}

words! {
    /// The state of an attach handle.
    HandleState {
        /// It may be assigned.
        Free = "free",
        /// An accelerator request owns it.
        Owned = "owned",
        /// It has no owner, and must not be assigned.
        Dirty = "dirty",
        /// An operator withdrew it.
        Failed = "failed",
    }
}

words! {
    /// The state of an accelerator request, as in Cyborg.
    ArqState {
        /// New.
        Initial = "Initial",
        /// It has a handle whose device is being programmed.
        BindStarted = "BindStarted",
        /// It has a handle.
        Bound = "Bound",
        /// Its device could not be programmed.
        BindFailed = "BindFailed",
        /// It was bound, and may be bound again.
        Unbound = "Unbound",
        /// Cyborg's state of a request that is being deleted. It is never stored here.
        Deleting = "Deleting",
    }
}

words! {
    /// The administrative status of a device.
    DeviceStatus {
        /// Its deployables are scheduled.
        Enabled = "enabled",
        /// An administrator disabled it.
        Maintaining = "maintaining",
    }
}

words! {
    /// The health of a device. A failed device is not scheduled.
    HealthState {
        /// No problem is known.
        Healthy = "healthy",
        /// It is scheduled, but an operator should check it.
        Degraded = "degraded",
        /// It is not scheduled.
        Failed = "failed",
    }
}

impl From<&kilonova_node_api::Health> for HealthState {
    fn from(health: &kilonova_node_api::Health) -> Self {
        use kilonova_node_api::Health;
        match health {
            Health::Healthy => Self::Healthy,
            Health::Degraded { .. } => Self::Degraded,
            Health::Failed { .. } => Self::Failed,
        }
    }
}

words! {
    /// A change of a handle's owner.
    OwnerChange {
        /// A request got the handle.
        Taken = "taken",
        /// A request released the handle.
        Freed = "freed",
    }
}

words! {
    /// The task of a device order.
    OrderTask {
        /// Load a bitstream.
        Program = "program",
        /// Clean a handle.
        Clean = "clean",
    }
}

words! {
    /// The state of a device order.
    OrderState {
        /// The host has not reported its result.
        Open = "open",
        /// It succeeded.
        Done = "done",
        /// It failed.
        Failed = "failed",
    }
}

words! {
    /// The status of an event for an external Nova.
    EventStatus {
        /// The request is bound.
        Completed = "completed",
        /// The binding failed.
        Failed = "failed",
    }
}
