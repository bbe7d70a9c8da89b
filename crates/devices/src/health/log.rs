//! Reads new lines of the kernel log, from `/dev/kmsg` or from a file that a log daemon or a
//! simulation writes.
//!
//! A file may be truncated or replaced, grow by gigabytes, end in half a line, or contain binary
//! data. Each read is bounded and continues where the last one ended; a backlog that is too large
//! is skipped and reported.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

/// How much of a file one read takes, in bytes.
const MOST_BYTES: u64 = 1 << 20;
/// A larger backlog is skipped.
const MOST_BACKLOG: u64 = 64 << 20;
/// Longer lines are truncated.
const MOST_LINE: usize = 4096;
/// Records of `/dev/kmsg` per read; the kernel's buffer holds fewer.
const MOST_RECORDS: usize = 100_000;
const O_NONBLOCK: i32 = 0o4000;

/// The position in a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cursor {
    /// For `/dev/kmsg`: number of the next record.
    record: u64,
    /// For a file: its identity and the offset.
    inode: u64,
    offset: u64,
}

/// A line with its time, if the log has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub text: String,
    /// Time since boot.
    pub uptime: Option<SignedDuration>,
}

/// A log, and the file that was open last, which is read to its end after it is replaced.
#[derive(Debug)]
pub(super) struct KernelLog {
    path: PathBuf,
    open: Option<File>,
}

impl KernelLog {
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), open: None }
    }

    /// The lines after the cursor. Without a cursor a file is read from its end, as the age of its
    /// lines is unknown; `/dev/kmsg` contains only lines since boot.
    pub fn read(&mut self, cursor: &mut Option<Cursor>) -> io::Result<(Vec<Line>, u64)> {
        let kind = match std::fs::metadata(&self.path) {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let mut at = cursor.unwrap_or_default();
                let rest = self.rest(&mut at);
                self.open = None;
                *cursor = Some(Cursor { inode: 0, offset: 0, ..at });
                return Ok((rest, 0));
            }
            Err(error) => return Err(error),
        };
        if kind.file_type().is_char_device() {
            let mut at = cursor.unwrap_or_default();
            let lines = self.records(&mut at)?;
            *cursor = Some(at);
            return Ok((lines, 0));
        }
        let mut at = cursor.unwrap_or(Cursor { record: 0, inode: kind.ino(), offset: kind.len() });
        let mut lines = Vec::new();
        if at.inode != kind.ino() {
            lines = self.rest(&mut at);
            at = Cursor { inode: kind.ino(), offset: 0, ..at };
            self.open = None;
        }
        if self.open.is_none() {
            self.open = Some(File::open(&self.path)?);
        }
        let mut skipped = 0;
        if let Some(file) = &mut self.open {
            let length = file.metadata()?.len();
            if length < at.offset {
                at.offset = 0;
            }
            if length - at.offset > MOST_BACKLOG {
                skipped = length - at.offset - MOST_BYTES;
                at.offset += skipped;
            }
            lines.extend(part(file, &mut at)?);
        }
        *cursor = Some(at);
        Ok((lines, skipped))
    }

    /// True if the file is unchanged since it was read to its end.
    pub fn is_quiet(&self, cursor: Option<Cursor>) -> bool {
        let Some(at) = cursor else { return false };
        match std::fs::metadata(&self.path) {
            Ok(found) => {
                found.file_type().is_file() && (found.ino(), found.len()) == (at.inode, at.offset)
            }
            Err(error) => error.kind() == ErrorKind::NotFound && at.inode == 0,
        }
    }

    /// The lines that a replaced file got after the last read.
    fn rest(&mut self, at: &mut Cursor) -> Vec<Line> {
        let Some(file) = &mut self.open else { return Vec::new() };
        let same = file.metadata().is_ok_and(|found| found.ino() == at.inode);
        if same { part(file, at).unwrap_or_default() } else { Vec::new() }
    }

    fn records(&mut self, at: &mut Cursor) -> io::Result<Vec<Line>> {
        let mut file = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(&self.path)?;
        let mut lines = Vec::new();
        let mut record = vec![0; 2 * MOST_LINE];
        for _ in 0..MOST_RECORDS {
            let length = match file.read(&mut record) {
                Ok(0) => break,
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // The kernel overwrote the next record.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => continue,
                Err(error) => return Err(error),
            };
            let text = String::from_utf8_lossy(&record[..length]);
            let text = text.lines().next().unwrap_or_default();
            let Some(Record { number, line }) = Record::parse(text) else { continue };
            if number >= at.record {
                at.record = number + 1;
                lines.push(line);
            }
        }
        Ok(lines)
    }
}

/// Complete lines of a file from the cursor on.
fn part(file: &mut File, at: &mut Cursor) -> io::Result<Vec<Line>> {
    file.seek(SeekFrom::Start(at.offset))?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes)?;
    let end = match bytes.iter().rposition(|byte| *byte == b'\n') {
        Some(last) => last + 1,
        None if bytes.len() > MOST_LINE => bytes.len(),
        None => 0,
    };
    at.offset += end as u64;
    let lines = bytes[..end].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    Ok(lines
        .map(|line| {
            let text = String::from_utf8_lossy(&line[..line.len().min(MOST_LINE)]);
            match Record::parse(&text) {
                Some(record) => record.line,
                None => Line { text: text.into_owned(), uptime: None },
            }
        })
        .collect())
}

/// `6,1234,5678901,-;text`.
struct Record {
    number: u64,
    line: Line,
}

impl Record {
    fn parse(text: &str) -> Option<Self> {
        let (head, text) = text.split_once(';')?;
        let mut fields = head.split(',');
        let _level: u32 = fields.next()?.parse().ok()?;
        let number = fields.next()?.parse().ok()?;
        let uptime = SignedDuration::from_micros(fields.next()?.parse().ok()?);
        Some(Self { number, line: Line { text: text.to_owned(), uptime: Some(uptime) } })
    }
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
