//! The removals that the host has carried out: each server with the generation of the document that requested it.
//!
//! A database that lost its last commits sends documents from before a removal. Without this record the agent would
//! create an empty guest in place of the one that it removed. A later document has a higher generation and may create
//! the guest again; the entry then stays, because it still tells documents from before and after the removal apart.

use std::io;
use std::path::PathBuf;

use kilonova_ids::ServerId;

use super::kept_lines::{Entry, KeptLines};

pub(super) struct Removals(KeptLines<Removal>);

#[derive(Clone, Copy)]
struct Removal {
    server: ServerId,
    generation: i64,
}

impl Entry for Removal {
    fn line(&self) -> String {
        format!("{} {}", self.server, self.generation)
    }

    fn parse(line: &str) -> Option<Self> {
        let (server, generation) = line.split_once(' ')?;
        Some(Self { server: server.parse().ok()?, generation: generation.parse().ok()? })
    }

    fn replaces(&self, earlier: &Self) -> bool {
        self.server == earlier.server
    }

    fn is_covered_by(&self, known: &Self) -> bool {
        self.server == known.server && self.generation <= known.generation
    }
}

impl Removals {
    pub(super) fn open(file: PathBuf) -> io::Result<Self> {
        KeptLines::open(file).map(Self)
    }

    /// The generation of the document that requested the last removal of the server.
    pub(super) fn of(&self, server: ServerId) -> Option<i64> {
        let removals = self.0.matching(|removal| removal.server == server);
        removals.last().map(|removal| removal.generation)
    }

    /// Records a removal, unless it or a later one is recorded.
    pub(super) fn record(&self, server: ServerId, generation: i64) -> io::Result<()> {
        self.0.record(Removal { server, generation })
    }

    /// Keeps in memory a removal that could not be written; the next record writes it too.
    pub(super) fn keep(&self, server: ServerId, generation: i64) {
        self.0.keep(Removal { server, generation });
    }
}

#[cfg(test)]
mod tests {
    use super::super::kept_lines::KEPT;
    use super::*;

    fn open(folder: &tempfile::TempDir) -> Removals {
        Removals::open(folder.path().join("state/removed")).expect("the file is readable")
    }

    fn text(folder: &tempfile::TempDir) -> String {
        std::fs::read_to_string(folder.path().join("state/removed")).expect("the file exists")
    }

    #[test]
    fn removals_survive_a_restart() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let (one, other) = (ServerId::new_v4(), ServerId::new_v4());
        let removals = open(&folder);
        assert_eq!(removals.of(one), None);
        for (server, generation) in [(one, 5), (other, 6), (one, 9), (one, 7)] {
            removals.record(server, generation).expect("the file is written");
        }
        for removals in [removals, open(&folder)] {
            assert_eq!((removals.of(one), removals.of(other)), (Some(9), Some(6)));
            assert_eq!(removals.of(ServerId::new_v4()), None);
        }
        assert_eq!(text(&folder).lines().count(), 3, "an earlier removal is not recorded");
    }

    #[test]
    fn an_incomplete_line_is_ignored_and_replaced() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let (one, torn) = (ServerId::new_v4(), ServerId::new_v4());
        open(&folder).record(one, 1_764_000_000_000_001).expect("the file is written");
        let file = folder.path().join("state/removed");
        let whole = text(&folder);
        for rest in [format!("{torn} 17640"), format!("{torn}"), "\0\0\0".to_owned()] {
            std::fs::write(&file, format!("{whole}{rest}")).expect("the file is written");
            let removals = open(&folder);
            assert_eq!(removals.of(torn), None, "{rest:?}");
            assert_eq!(removals.of(one), Some(1_764_000_000_000_001));
            removals.record(torn, 1_764_000_000_000_002).expect("the file is written");
            let next = format!("{whole}{torn} 1764000000000002\n");
            assert_eq!(text(&folder), next, "{rest:?}");
        }
        std::fs::write(&file, format!("\0\0\n{whole}")).expect("the file is written");
        assert_eq!(open(&folder).of(one), Some(1_764_000_000_000_001), "the other lines count");
    }

    #[test]
    fn the_newest_removals_are_kept() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let servers: Vec<ServerId> = (0..2 * KEPT + 10).map(|_| ServerId::new_v4()).collect();
        let removals = open(&folder);
        for (generation, server) in (1..).zip(&servers) {
            removals.record(*server, generation).expect("the file is written");
        }
        let lines = text(&folder).lines().count();
        assert!((KEPT..2 * KEPT).contains(&lines), "{lines}");
        let oldest = servers.len() - KEPT;
        for removals in [removals, open(&folder)] {
            assert_eq!(removals.of(servers[oldest - 1]), None);
            assert_eq!(removals.of(servers[oldest]), i64::try_from(oldest + 1).ok());
            assert_eq!(removals.0.count(), KEPT);
        }
    }

    #[test]
    fn a_failed_write_is_repeated() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let server = ServerId::new_v4();
        let removals = open(&folder);
        let file = folder.path().join("state/removed");
        std::fs::create_dir_all(file.join("in the way")).expect("the directory is created");
        removals.record(server, 5).expect_err("a directory has the name");
        assert_eq!(removals.of(server), None);
        std::fs::remove_dir_all(&file).expect("the directory is removed");
        removals.record(server, 5).expect("the file is written");
        assert_eq!(open(&folder).of(server), Some(5));
    }

    #[test]
    fn a_removal_in_memory_is_written_with_the_next() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let (one, other) = (ServerId::new_v4(), ServerId::new_v4());
        let removals = open(&folder);
        removals.keep(one, 5);
        removals.keep(one, 4);
        assert_eq!((removals.of(one), open(&folder).of(one)), (Some(5), None));
        removals.record(other, 6).expect("the file is written");
        assert_eq!((open(&folder).of(one), open(&folder).of(other)), (Some(5), Some(6)));
        removals.keep(one, 7);
        removals.record(one, 6).expect("the file is written");
        assert_eq!(open(&folder).of(one), Some(7), "a later removal is not replaced");
    }
}
