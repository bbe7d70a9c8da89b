//! Where the devices of a request must be relative to each other.

use std::fmt;

/// The key in a group of a device profile.
pub const TOPOLOGY: &str = "accel:topology";

/// How near the devices of a server must be to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topology {
    /// No condition.
    Any,
    /// On one NUMA node.
    SameNuma,
    /// Below one PCIe switch.
    SameSwitch,
    /// In one island, so that all are connected to each other by NVLink or xGMI.
    NvLink,
    /// All devices of one island.
    NvLinkFull,
    /// In one island, where no other server has a device.
    ExclusiveIsland,
}

impl Topology {
    /// All topologies.
    pub const ALL: [Self; 6] = [
        Self::Any,
        Self::SameNuma,
        Self::SameSwitch,
        Self::NvLink,
        Self::NvLinkFull,
        Self::ExclusiveIsland,
    ];

    /// The value of [`TOPOLOGY`] that requests it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::SameNuma => "same-numa",
            Self::SameSwitch => "same-switch",
            Self::NvLink => "nvlink",
            Self::NvLinkFull => "nvlink-full",
            Self::ExclusiveIsland => "exclusive-island",
        }
    }

    /// The topology that a value of [`TOPOLOGY`] requests.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.word() == word)
    }

    /// The allowed values, as a sentence for an error message.
    pub fn allowed() -> String {
        let words: Vec<String> = Self::ALL.iter().map(|one| format!("'{one}'")).collect();
        format!("It must be one of {}.", words.join(", "))
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
