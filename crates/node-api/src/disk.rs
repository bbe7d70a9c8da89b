//! How a disk's file holds what the guest sees.

/// Format of a disk's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DiskFormat {
    /// The bytes that the guest sees.
    Raw,
    /// QEMU's own; it grows with what is written.
    Qcow2,
}

impl DiskFormat {
    /// `raw` or `qcow2`, as QEMU, libvirt and the image service have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
        }
    }

    /// The format of that name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Raw, Self::Qcow2].into_iter().find(|format| format.as_str() == name)
    }
}
