//! The rebuilds of the host's guests. Each server has an entry with the values of
//! [`Boot::rebuilt`](kilonova_node_api::Boot::rebuilt) that its disks have had, in the order in which the host began
//! the rebuilds. `None` stands for the disks that a guest was created with.
//!
//! A database that lost its last commits sends documents from before a rebuild. Without this record the agent would
//! take such a document for another rebuild, and replace the newer disks. Generations do not tell the two apart: after
//! the loss, a change to the server issues a document with a new generation, but with the earlier rebuild. A rebuild
//! that the host has not seen is in no entry, so it is always carried out.
//!
//! A full record drops a whole entry: that of the server whose last rebuild is the oldest. Other servers therefore
//! never displace only a part of a server's rebuilds.

use std::io;
use std::path::PathBuf;

use kilonova_ids::{OperationId, ServerId};

use super::kept_lines::{Entry, KeptLines};

/// The word in the file for `None`.
const NONE: &str = "none";

/// Number of values that are kept for a server: those of 16 rebuilds, and that of the disks before them. A server that
/// is rebuilt in a loop therefore displaces no other.
const KEPT_OF_SERVER: usize = 17;

pub(super) struct Rebuilds(KeptLines<History>);

/// The rebuilds of a server, oldest first. Each occurs once.
#[derive(Clone, PartialEq, Eq)]
struct History {
    server: ServerId,
    rebuilds: Box<[Option<OperationId>]>,
}

impl Entry for History {
    fn line(&self) -> String {
        let word = |rebuilt: &Option<OperationId>| match rebuilt {
            Some(operation) => format!(" {operation}"),
            None => format!(" {NONE}"),
        };
        let words: String = self.rebuilds.iter().map(word).collect();
        format!("{}{words}", self.server)
    }

    fn parse(line: &str) -> Option<Self> {
        let (server, words) = line.split_once(' ')?;
        let rebuilt = |word: &str| match word {
            NONE => Some(None),
            word => word.parse().ok().map(Some),
        };
        let rebuilds = words.split(' ').map(rebuilt).collect::<Option<_>>()?;
        Some(Self { server: server.parse().ok()?, rebuilds })
    }

    fn replaces(&self, earlier: &Self) -> bool {
        self.server == earlier.server
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
        let rebuilds = self.of(server);
        rebuilds.split_last().is_some_and(|(_, earlier)| earlier.contains(&rebuilt))
    }

    /// Records that the disks of the rebuild `earlier` are replaced by those of the rebuild `later`. Both move to the
    /// end of the server's history, even if it contains them: the disks of an unshelved guest, for example, have the
    /// value `None` again. Repeating a record changes nothing.
    pub(super) fn record(
        &self,
        server: ServerId,
        earlier: Option<OperationId>,
        later: Option<OperationId>,
    ) -> io::Result<()> {
        self.append(server, self.of(server), &[earlier, later])
    }

    /// Records that the host creates a guest, which it did not have, with the disks of this rebuild. Does nothing for a
    /// server without an entry, because none of its earlier disks are known.
    pub(super) fn record_new(
        &self,
        server: ServerId,
        rebuilt: Option<OperationId>,
    ) -> io::Result<()> {
        let known = self.of(server);
        if known.is_empty() { Ok(()) } else { self.append(server, known, &[rebuilt]) }
    }

    fn append(
        &self,
        server: ServerId,
        mut rebuilds: Vec<Option<OperationId>>,
        last: &[Option<OperationId>],
    ) -> io::Result<()> {
        rebuilds.retain(|known| !last.contains(known));
        rebuilds.extend(last);
        let forgotten = rebuilds.len().saturating_sub(KEPT_OF_SERVER);
        rebuilds.drain(..forgotten);
        self.0.record(History { server, rebuilds: rebuilds.into_boxed_slice() })
    }

    fn of(&self, server: ServerId) -> Vec<Option<OperationId>> {
        let mut histories = self.0.matching(|history| history.server == server);
        histories.pop().map_or_else(Vec::new, |history| history.rebuilds.into_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::super::kept_lines::KEPT;
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
            assert_eq!(rebuilds.0.count(), 1);
        }
    }

    #[test]
    fn a_rebuild_that_comes_back_is_the_last_again() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let rebuilds = open(&folder);
        let (server, fresh) = (ServerId::new_v4(), ServerId::new_v4());
        let (one, two) = (Some(OperationId::new_v4()), Some(OperationId::new_v4()));
        let is_superseded = |rebuilds: &Rebuilds| {
            [None, one, two].map(|rebuilt| rebuilds.is_superseded(server, rebuilt))
        };
        rebuilds.record(server, None, one).expect("the file is written");
        rebuilds.record(server, one, None).expect("the file is written");
        assert_eq!(is_superseded(&rebuilds), [false, true, false]);
        rebuilds.record(server, None, two).expect("the file is written");
        assert_eq!(is_superseded(&rebuilds), [true, true, false]);
        rebuilds.record_new(server, one).expect("the file is written");
        rebuilds.record_new(fresh, one).expect("the file is written");
        for rebuilds in [rebuilds, open(&folder)] {
            assert_eq!(is_superseded(&rebuilds), [true, false, true]);
            assert_eq!(rebuilds.0.count(), 1, "a guest without a known rebuild needs no entry");
        }
    }

    #[test]
    fn the_servers_that_were_rebuilt_last_are_kept() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let rebuilds = open(&folder);
        let servers: Vec<ServerId> = (0..=KEPT).map(|_| ServerId::new_v4()).collect();
        let record = |server, earlier, later| {
            rebuilds.record(server, earlier, Some(later)).expect("the file is written");
        };
        let first = OperationId::new_v4();
        for server in servers.iter().take(KEPT) {
            record(*server, None, first);
        }
        let second = OperationId::new_v4();
        record(servers[0], Some(first), second);
        record(servers[KEPT], None, first);
        let mut many = Some(first);
        for _ in 0..2 * KEPT_OF_SERVER {
            let next = OperationId::new_v4();
            record(servers[KEPT], many, next);
            many = Some(next);
        }
        for rebuilds in [rebuilds, open(&folder)] {
            assert_eq!(rebuilds.0.count(), KEPT);
            for rebuilt in [None, Some(first)] {
                assert!(rebuilds.is_superseded(servers[0], rebuilt), "{rebuilt:?}");
            }
            assert!(!rebuilds.is_superseded(servers[0], Some(second)));
            assert!(!rebuilds.is_superseded(servers[1], None), "the oldest is forgotten");
            assert!(rebuilds.is_superseded(servers[2], None));
            assert_eq!(rebuilds.of(servers[KEPT]).len(), KEPT_OF_SERVER);
            assert!(!rebuilds.is_superseded(servers[KEPT], many));
        }
    }
}
