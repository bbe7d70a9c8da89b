//! The removals that the host has carried out: each server with the generation of the document that requested it.
//!
//! A database that lost its last commits sends documents from before a removal. Without this record the agent would
//! create an empty guest in place of the one that it removed. A later document has a higher generation and may create the
//! guest again; the entry then stays, because it still tells documents from before and after the removal apart.
//!
//! The file has one line per removal and grows by appending. It is not synced to disk, like the other files of the agent
//! (`kilonova_hypervisor::write_atomically`): it survives a crash of the process. Only a power loss within seconds of a
//! removal that the database loses too could undo an entry. An entry that cannot be written is kept in memory and written
//! with the next one; a restart before that loses it.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kilonova_hypervisor::write_atomically;
use kilonova_ids::ServerId;

/// Number of removals that are kept.
const KEPT: usize = 4096;

pub(super) struct Removals {
    file: PathBuf,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// Oldest first. A list needs the least memory, of which a process with thousands of hosts has many; only removals
    /// and guests that are created search it.
    list: VecDeque<(ServerId, i64)>,
    /// Number of lines of the file.
    lines: usize,
    /// True if the file may end in an incomplete line or lacks an entry of the list. The next record then writes the
    /// whole file instead of appending to it.
    must_rewrite: bool,
}

impl Kept {
    fn of(&self, server: ServerId) -> Option<i64> {
        self.list.iter().rev().find(|(one, _)| *one == server).map(|(_, generation)| *generation)
    }

    fn has(&self, server: ServerId, generation: i64) -> bool {
        self.of(server).is_some_and(|known| known >= generation)
    }

    fn add(&mut self, server: ServerId, generation: i64) {
        if let Some(at) = self.list.iter().position(|(one, _)| *one == server) {
            self.list.remove(at);
        }
        if self.list.len() >= KEPT {
            self.list.pop_front();
        }
        self.list.push_back((server, generation));
    }
}

impl Removals {
    pub(super) fn open(file: PathBuf) -> io::Result<Self> {
        let text = match std::fs::read(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other?,
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        // The removal of an incomplete line was not carried out.
        let (whole, rest) = text.rsplit_once('\n').unwrap_or(("", text.as_str()));
        let mut kept = Kept { must_rewrite: !rest.is_empty(), ..Kept::default() };
        for line in whole.lines() {
            kept.lines += 1;
            if let Some((server, generation)) = parse(line) {
                kept.add(server, generation);
            }
        }
        Ok(Self { file, kept: Mutex::new(kept) })
    }

    /// The generation of the document that requested the last removal of the server.
    pub(super) fn of(&self, server: ServerId) -> Option<i64> {
        self.kept().of(server)
    }

    /// Records a removal, unless it or a later one is recorded.
    pub(super) fn record(&self, server: ServerId, generation: i64) -> io::Result<()> {
        let mut kept = self.kept();
        let is_known = kept.has(server, generation);
        if is_known && !kept.must_rewrite {
            return Ok(());
        }
        if kept.must_rewrite || kept.lines >= kept.list.len().saturating_mul(2).max(2) {
            let mut next = Kept { list: kept.list.clone(), ..Kept::default() };
            if !is_known {
                next.add(server, generation);
            }
            next.lines = next.list.len();
            let text: String = next.list.iter().map(|(server, at)| line(*server, *at)).collect();
            write_atomically(&self.file, text.as_bytes())?;
            *kept = next;
            return Ok(());
        }
        if let Err(error) = self.append(&line(server, generation)) {
            kept.must_rewrite = true;
            return Err(error);
        }
        kept.lines += 1;
        kept.add(server, generation);
        Ok(())
    }

    /// Keeps a removal that could not be recorded in memory; the next record writes it too.
    pub(super) fn keep(&self, server: ServerId, generation: i64) {
        let mut kept = self.kept();
        if !kept.has(server, generation) {
            kept.add(server, generation);
            kept.must_rewrite = true;
        }
    }

    fn append(&self, line: &str) -> io::Result<()> {
        let open = || std::fs::File::options().append(true).create(true).open(&self.file);
        let mut file = match (open(), self.file.parent()) {
            (Err(error), Some(folder)) if error.kind() == io::ErrorKind::NotFound => {
                std::fs::create_dir_all(folder)?;
                open()?
            }
            (opened, _) => opened?,
        };
        file.write_all(line.as_bytes())
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn line(server: ServerId, generation: i64) -> String {
    format!("{server} {generation}\n")
}

fn parse(line: &str) -> Option<(ServerId, i64)> {
    let (server, generation) = line.split_once(' ')?;
    Some((server.parse().ok()?, generation.parse().ok()?))
}

#[cfg(test)]
mod tests {
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
            assert_eq!(removals.kept().list.len(), KEPT);
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
