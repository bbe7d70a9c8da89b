//! Disk image formats.

/// Format of a disk image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DiskFormat {
    /// The plain content of the disk.
    Raw,
    /// QEMU's sparse format.
    Qcow2,
}

impl DiskFormat {
    /// `raw` or `qcow2`, as in QEMU, libvirt and Glance.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
        }
    }

    /// The format with that name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Raw, Self::Qcow2].into_iter().find(|format| format.as_str() == name)
    }
}
