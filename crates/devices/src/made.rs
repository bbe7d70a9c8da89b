//! What the kernel makes for one guest and takes back after it: a mediated device, or the type of a
//! virtual function.
//!
//! Never decides when; both ways are safe to repeat.

use kilonova_node_api::Attachment;

use crate::{Error, Mdev, Sysfs, Vgpu};

/// Something made for a guest.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Made {
    /// A mediated device.
    Mdev(Mdev),
    /// A virtual function with a type.
    Vgpu(Vgpu),
}

impl Made {
    /// What has to be made before a guest can be given the device, if anything.
    pub fn of(device: &Attachment) -> Option<Self> {
        match device {
            Attachment::Mdev { uuid, parent, mdev_type } => Some(Self::Mdev(Mdev {
                uuid: *uuid,
                parent: parent.clone(),
                mdev_type: mdev_type.clone(),
            })),
            Attachment::Vfio { address, vgpu_type } if !vgpu_type.is_empty() => {
                Some(Self::Vgpu(Vgpu { address: address.clone(), vgpu_type: vgpu_type.clone() }))
            }
            Attachment::Vfio { .. } | Attachment::Pci { .. } | Attachment::TestPci { .. } => None,
        }
    }

    /// Whether it could be made: a mediated device of that uuid that is another one is in the way.
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

    /// Makes it, unless it is there.
    pub fn make(&self, sysfs: &dyn Sysfs) -> Result<(), Error> {
        match self {
            Self::Mdev(mdev) => crate::create(sysfs, mdev),
            Self::Vgpu(vgpu) => crate::set_type(sysfs, vgpu),
        }
    }

    /// Takes it back, if it is there and is the one meant.
    pub fn unmake(&self, sysfs: &dyn Sysfs) -> Result<(), Error> {
        match self {
            Self::Mdev(mdev) => match crate::find(sysfs, mdev.uuid)? {
                Some(found) if found == *mdev => crate::remove(sysfs, mdev.uuid),
                _ => Ok(()),
            },
            Self::Vgpu(vgpu) => crate::clear_type(sysfs, vgpu),
        }
    }

    /// Whether it and the other are the same thing of the kernel's, whatever their types.
    pub fn same_place(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Mdev(one), Self::Mdev(other)) => one.uuid == other.uuid,
            (Self::Vgpu(one), Self::Vgpu(other)) => one.address == other.address,
            _ => false,
        }
    }
}

/// As a line of a file: `mdev <uuid> <parent> <type>` or `vgpu <address> <type>`.
impl std::fmt::Display for Made {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Mdev(Mdev { uuid, parent, mdev_type }) => {
                write!(f, "mdev {uuid} {parent} {mdev_type}")
            }
            Self::Vgpu(Vgpu { address, vgpu_type }) => write!(f, "vgpu {address} {vgpu_type}"),
        }
    }
}

impl std::str::FromStr for Made {
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
            _ => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_back() {
        let mdev = Mdev {
            uuid: uuid::Uuid::new_v4(),
            parent: "mtty_mtty".into(),
            mdev_type: "mtty-1".into(),
        };
        let vgpu = Vgpu { address: "0000:25:00.4".into(), vgpu_type: "nvidia-558".into() };
        for made in [Made::Mdev(mdev), Made::Vgpu(vgpu)] {
            assert_eq!(made.to_string().parse(), Ok(made));
        }
        for wrong in ["", "vgpu", "mdev x 0000:84:00.0 nvidia-35", "vgpu 0000:25:00.4"] {
            assert_eq!(wrong.parse::<Made>(), Err(()), "{wrong}");
        }
    }
}
