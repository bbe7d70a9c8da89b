//! The rebuilds of the host's guests, in the order in which the host began to carry them out: each server with the value of
//! [`Boot::rebuilt`](kilonova_node_api::Boot::rebuilt), which is `None` for the disks that a guest was created with.
//!
//! A database that lost its last commits sends documents from before a rebuild. Without this record the agent would take
//! such a document for another rebuild, and replace the newer disks. Generations do not tell the two apart: after the
//! loss, a change of the server issues a document with a new generation, but with the earlier rebuild. A rebuild that the
//! host has not seen is in no entry, so it is always carried out.

use std::io;
use std::path::PathBuf;

use kilonova_ids::{OperationId, ServerId};

use super::kept_lines::{Entry, KeptLines};

/// The entry of the disks that a guest was created with.
const NONE: &str = "none";

pub(super) struct Rebuilds(KeptLines<Rebuild>);

#[derive(Clone, Copy, PartialEq, Eq)]
struct Rebuild {
    server: ServerId,
    rebuilt: Option<OperationId>,
}

impl Entry for Rebuild {
    fn line(&self) -> String {
        match self.rebuilt {
            Some(operation) => format!("{} {operation}", self.server),
            None => format!("{} {NONE}", self.server),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let (server, rebuilt) = line.split_once(' ')?;
        let rebuilt = if rebuilt == NONE { None } else { Some(rebuilt.parse().ok()?) };
        Some(Self { server: server.parse().ok()?, rebuilt })
    }

    fn replaces(&self, earlier: &Self) -> bool {
        self == earlier
    }

    fn is_covered_by(&self, known: &Self) -> bool {
        self == known
    }
}

impl Rebuilds {
    pub(super) fn open(file: PathBuf) -> io::Result<Self> {
        KeptLines::open(file).map(Self)
    }

    /// True if the host has begun a later rebuild of the guest than this one.
    pub(super) fn is_superseded(&self, server: ServerId, rebuilt: Option<OperationId>) -> bool {
        let rebuilds = self.0.matching(|rebuild| rebuild.server == server);
        let earlier = rebuilds.split_last().map_or(&[][..], |(_, earlier)| earlier);
        earlier.contains(&Rebuild { server, rebuilt })
    }

    /// Records that the guest's disks, of the rebuild `earlier`, are replaced by those of the rebuild `later`. A rebuild
    /// that is recorded keeps its place, so that a repeated record changes nothing.
    pub(super) fn record(
        &self,
        server: ServerId,
        earlier: Option<OperationId>,
        later: Option<OperationId>,
    ) -> io::Result<()> {
        self.0.record(Rebuild { server, rebuilt: earlier })?;
        self.0.record(Rebuild { server, rebuilt: later })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(folder: &tempfile::TempDir) -> Rebuilds {
        Rebuilds::open(folder.path().join("state/rebuilds")).expect("the file is readable")
    }

    #[test]
    fn only_the_last_rebuild_is_not_superseded() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let rebuilds = open(&folder);
        let (server, other) = (ServerId::new_v4(), ServerId::new_v4());
        let (failed, last, unseen) =
            (OperationId::new_v4(), OperationId::new_v4(), OperationId::new_v4());
        assert!(!rebuilds.is_superseded(server, None));
        // The first rebuild failed, so that the second one replaces the same disks.
        for later in [failed, failed, last, last] {
            rebuilds.record(server, None, Some(later)).expect("the file is written");
        }
        for rebuilds in [rebuilds, open(&folder)] {
            for (rebuilt, is_superseded) in
                [(None, true), (Some(failed), true), (Some(last), false), (Some(unseen), false)]
            {
                assert_eq!(rebuilds.is_superseded(server, rebuilt), is_superseded, "{rebuilt:?}");
                assert!(!rebuilds.is_superseded(other, rebuilt));
            }
            assert_eq!(rebuilds.0.count(), 3);
        }
    }
}
