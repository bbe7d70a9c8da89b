//! A file of the agent with one entry per line, of which the newest are kept.
//!
//! The file grows by appending. Like the other files of the agent (`kilonova_hypervisor::write_atomically`), it
//! survives a crash of the process but is not synced to disk. A power loss within seconds of an event can undo its
//! entry, which matters only if the database loses the event too. An entry that cannot be written can be kept in
//! memory; it is written with the next one, and a restart before that loses it.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kilonova_hypervisor::write_atomically;

/// Number of entries that are kept.
pub(super) const KEPT: usize = 4096;

/// An entry of the file.
pub(super) trait Entry: Clone {
    /// Its line, without the line feed.
    fn line(&self) -> String;

    /// The entry of a line; `None` if the line contains none.
    fn parse(line: &str) -> Option<Self>;

    /// True if the earlier entry is not needed after this one.
    fn replaces(&self, earlier: &Self) -> bool;

    /// True if this entry need not be recorded after the known one.
    fn is_covered_by(&self, known: &Self) -> bool;
}

pub(super) struct KeptLines<E> {
    file: PathBuf,
    kept: Mutex<Kept<E>>,
}

#[derive(Clone)]
struct Kept<E> {
    /// Oldest first. A list needs less memory than a map, and a process with thousands of simulated hosts has many of
    /// them. Only rare events search it.
    list: VecDeque<E>,
    /// Number of lines in the file.
    lines: usize,
    /// True if the file may end in an incomplete line or lacks an entry of the list. The next record then writes the
    /// whole file instead of appending to it.
    must_rewrite: bool,
}

impl<E: Entry> Kept<E> {
    fn has(&self, entry: &E) -> bool {
        self.list.iter().any(|known| entry.is_covered_by(known))
    }

    fn add(&mut self, entry: E) {
        if let Some(at) = self.list.iter().position(|earlier| entry.replaces(earlier)) {
            self.list.remove(at);
        }
        if self.list.len() >= KEPT {
            self.list.pop_front();
        }
        self.list.push_back(entry);
    }
}

impl<E: Entry> KeptLines<E> {
    pub(super) fn open(file: PathBuf) -> io::Result<Self> {
        let text = match std::fs::read(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other?,
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        // The event of an incomplete line did not happen.
        let (whole, rest) = text.rsplit_once('\n').unwrap_or(("", text.as_str()));
        let mut kept = Kept { list: VecDeque::new(), lines: 0, must_rewrite: !rest.is_empty() };
        for line in whole.lines() {
            kept.lines += 1;
            if let Some(entry) = E::parse(line) {
                kept.add(entry);
            }
        }
        Ok(Self { file, kept: Mutex::new(kept) })
    }

    /// The entries that match, oldest first.
    pub(super) fn matching(&self, matches: impl Fn(&E) -> bool) -> Vec<E> {
        self.kept().list.iter().filter(|entry| matches(entry)).cloned().collect()
    }

    /// Records an entry, unless a known one covers it.
    pub(super) fn record(&self, entry: E) -> io::Result<()> {
        let mut kept = self.kept();
        let is_known = kept.has(&entry);
        if is_known && !kept.must_rewrite {
            return Ok(());
        }
        if kept.must_rewrite || kept.lines >= kept.list.len().saturating_mul(2).max(2) {
            let mut next = Kept { must_rewrite: false, ..kept.clone() };
            if !is_known {
                next.add(entry);
            }
            next.lines = next.list.len();
            let text: String = next.list.iter().map(whole_line).collect();
            write_atomically(&self.file, text.as_bytes())?;
            *kept = next;
            return Ok(());
        }
        if let Err(error) = self.append(&whole_line(&entry)) {
            kept.must_rewrite = true;
            return Err(error);
        }
        kept.lines += 1;
        kept.add(entry);
        Ok(())
    }

    /// Keeps in memory an entry that could not be written; the next record writes it too.
    pub(super) fn keep(&self, entry: E) {
        let mut kept = self.kept();
        if !kept.has(&entry) {
            kept.add(entry);
            kept.must_rewrite = true;
        }
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.kept().list.len()
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

    fn kept(&self) -> MutexGuard<'_, Kept<E>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn whole_line<E: Entry>(entry: &E) -> String {
    entry.line() + "\n"
}
