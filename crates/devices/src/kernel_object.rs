//! Kernel objects that are created for one guest and removed after it: a mediated device, the type of a
//! virtual function, or a GPU instance.
//!
//! It never decides when to create or remove one. Creating and removing are idempotent.

use kilonova_node_api::{Attachment, GpuInstance, MigPlacement};
use uuid::Uuid;

use crate::{Error, Mdev, MigDriver, Sysfs, Vgpu};

/// A kernel object created for a guest. The order is that of their removal.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KernelObject {
    /// A mediated device.
    Mdev(Mdev),
    /// A virtual function with a type.
    Vgpu(Vgpu),
    /// A GPU instance of a card in MIG mode.
    Instance(GpuInstance),
}

impl KernelObject {
    /// The objects that an attachment needs, in the order of their creation.
    pub fn of(device: &Attachment) -> Vec<Self> {
        match device {
            Attachment::Mdev { uuid, parent, mdev_type } => vec![Self::Mdev(Mdev {
                uuid: *uuid,
                parent: parent.clone(),
                mdev_type: mdev_type.clone(),
            })],
            Attachment::Vfio { address, vgpu_type, instance } if !vgpu_type.is_empty() => {
                let vgpu = Vgpu { address: address.clone(), vgpu_type: vgpu_type.clone() };
                let instance = instance.clone().map(Self::Instance);
                instance.into_iter().chain([Self::Vgpu(vgpu)]).collect()
            }
            Attachment::Vfio { .. } | Attachment::Pci { .. } | Attachment::TestPci { .. } => {
                Vec::new()
            }
        }
    }

    /// Checks that it can be created: no other mediated device has its UUID.
    pub fn check(&self, sysfs: &dyn Sysfs) -> Result<(), Error> {
        let Self::Mdev(mdev) = self else { return Ok(()) };
        match crate::find(sysfs, mdev.uuid)? {
            Some(found) if found != *mdev => Err(Error::Conflict {
                uuid: mdev.uuid,
                parent: found.parent,
                mdev_type: found.mdev_type,
            }),
            _ => Ok(()),
        }
    }

    /// Creates it, unless it exists.
    pub fn make(&self, sysfs: &dyn Sysfs, mig: &dyn MigDriver) -> Result<(), Error> {
        match self {
            Self::Mdev(mdev) => crate::create(sysfs, mdev),
            Self::Vgpu(vgpu) => crate::set_type(sysfs, vgpu),
            Self::Instance(instance) => mig.create(instance),
        }
    }

    /// Removes it, if it exists and matches.
    pub fn unmake(&self, sysfs: &dyn Sysfs, mig: &dyn MigDriver) -> Result<(), Error> {
        match self {
            Self::Mdev(mdev) => match crate::find(sysfs, mdev.uuid)? {
                Some(found) if found == *mdev => crate::remove(sysfs, mdev.uuid),
                _ => Ok(()),
            },
            Self::Vgpu(vgpu) => crate::clear_type(sysfs, vgpu),
            Self::Instance(instance) => mig.destroy(instance),
        }
    }

    /// Its UUID, if it is a mediated device.
    pub fn mdev(&self) -> Option<Uuid> {
        match self {
            Self::Mdev(mdev) => Some(mdev.uuid),
            Self::Vgpu(_) | Self::Instance(_) => None,
        }
    }

    /// True if both are the same kernel object, regardless of its type. The removal of a GPU instance never affects one
    /// of another profile.
    pub fn same_place(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Mdev(one), Self::Mdev(other)) => one.uuid == other.uuid,
            (Self::Vgpu(one), Self::Vgpu(other)) => one.address == other.address,
            // Only one of two instances with the same start can exist.
            (Self::Instance(one), Self::Instance(other)) => one == other,
            _ => false,
        }
    }
}

/// A line of a file: `mdev <uuid> <parent> <type>`, `vgpu <address> <type>` or `mig <card> <profile> <start> <size>`.
impl std::fmt::Display for KernelObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Mdev(Mdev { uuid, parent, mdev_type }) => {
                write!(f, "mdev {uuid} {parent} {mdev_type}")
            }
            Self::Vgpu(Vgpu { address, vgpu_type }) => write!(f, "vgpu {address} {vgpu_type}"),
            Self::Instance(GpuInstance { card, profile, place }) => {
                write!(f, "mig {card} {profile} {} {}", place.start, place.size)
            }
        }
    }
}

impl std::str::FromStr for KernelObject {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["mdev", uuid, parent, mdev_type] => Ok(Self::Mdev(Mdev {
                uuid: uuid.parse().map_err(drop)?,
                parent: parent.to_owned(),
                mdev_type: mdev_type.to_owned(),
            })),
            ["vgpu", address, vgpu_type] => Ok(Self::Vgpu(Vgpu {
                address: address.to_owned(),
                vgpu_type: vgpu_type.to_owned(),
            })),
            ["mig", card, profile, start, size] => Ok(Self::Instance(GpuInstance {
                card: card.to_owned(),
                profile: profile.to_owned(),
                place: MigPlacement {
                    start: start.parse().map_err(drop)?,
                    size: size.parse().map_err(drop)?,
                },
            })),
            _ => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_survive_a_round_trip() {
        let mdev = Mdev {
            uuid: uuid::Uuid::new_v4(),
            parent: "mtty_mtty".into(),
            mdev_type: "mtty-1".into(),
        };
        let vgpu = Vgpu { address: "0000:25:00.4".into(), vgpu_type: "nvidia-558".into() };
        let instance = GpuInstance {
            card: "0000:41:00.0".into(),
            profile: "1g.5gb+me".into(),
            place: MigPlacement { start: 6, size: 1 },
        };
        let all =
            [KernelObject::Mdev(mdev), KernelObject::Vgpu(vgpu), KernelObject::Instance(instance)];
        for made in all {
            assert_eq!(made.to_string().parse(), Ok(made));
        }
        for wrong in
            ["", "vgpu", "mdev x 0000:84:00.0 nvidia-35", "vgpu 0000:25:00.4", "mig a b c 1"]
        {
            assert_eq!(wrong.parse::<KernelObject>(), Err(()), "{wrong}");
        }
    }
}
