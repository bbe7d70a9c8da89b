//! Logs that are truncated, replaced, flooded or binary.

use std::io::Write;

use super::*;

struct Fixture {
    _folder: tempfile::TempDir,
    path: PathBuf,
    log: KernelLog,
    cursor: Option<Cursor>,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let path = folder.path().join("kmsg");
        let log = KernelLog::new(&path);
        let mut new = Self { _folder: folder, path, log, cursor: None };
        assert_eq!(new.look(), Vec::<String>::new(), "the log does not exist yet");
        new
    }

    fn write(&self, bytes: &[u8]) {
        let mut file =
            OpenOptions::new().create(true).append(true).open(&self.path).expect("the log opens");
        file.write_all(bytes).expect("the file is written");
    }

    fn look(&mut self) -> Vec<String> {
        let (lines, _) = self.log.read(&mut self.cursor).expect("the log is readable");
        lines.into_iter().map(|line| line.text).collect()
    }
}

#[test]
fn lines_come_once_and_whole() {
    let mut log = Fixture::new();
    log.write(b"one\ntw");
    assert_eq!(log.look(), ["one"]);
    assert_eq!(log.look(), Vec::<String>::new());
    log.write(b"o\n\n6,10,5000000,-;three\n");
    assert_eq!(log.look(), ["two", "three"]);
    let (lines, _) = {
        log.write(b"6,11,7000000,-;four\n");
        log.log.read(&mut log.cursor).expect("the log is readable")
    };
    assert_eq!(lines, [Line { text: "four".into(), uptime: Some(SignedDuration::from_secs(7)) }]);
}

#[test]
fn an_existing_log_is_read_from_its_end() {
    let mut log = Fixture::new();
    log.write(b"old\n");
    log.cursor = None;
    assert_eq!(log.look(), Vec::<String>::new());
    log.write(b"new\n");
    assert_eq!(log.look(), ["new"]);
}

#[test]
fn truncated_and_replaced_logs_are_followed() {
    let mut log = Fixture::new();
    log.write(b"one\ntwo\n");
    assert_eq!(log.look().len(), 2);
    std::fs::write(&log.path, "cut\n").expect("the file is written");
    assert_eq!(log.look(), ["cut"]);
    log.write(b"late\n");
    std::fs::rename(&log.path, log.path.with_extension("1")).expect("the log is renamed");
    log.write(b"fresh\n");
    assert_eq!(log.look(), ["late", "fresh"]);
    std::fs::remove_file(&log.path).expect("the log is removed");
    assert_eq!(log.look(), Vec::<String>::new());
    log.write(b"again\n");
    assert_eq!(log.look(), ["again"]);
    log.log = KernelLog::new(&log.path);
    assert_eq!(log.look(), Vec::<String>::new(), "a restart continues at the cursor");
}

#[test]
fn binary_data_and_endless_lines_are_harmless() {
    let mut log = Fixture::new();
    log.write(b"\xff\xfe\x00 NVRM\nnext\n");
    assert_eq!(log.look()[1], "next");
    log.write(&vec![b'x'; 3 * MOST_LINE]);
    assert!(log.look().iter().all(|line| line.len() <= MOST_LINE));
    log.write(b"\nafter\n");
    assert_eq!(log.look(), ["after"]);
}

#[test]
fn a_flood_is_read_in_parts_or_skipped() {
    let mut log = Fixture::new();
    let many = b"noise noise noise noise noise\n".repeat(100_000);
    log.write(&many);
    log.write(b"last\n");
    let mut looks = 0;
    while log.look().last().is_none_or(|line| line != "last") {
        looks += 1;
        assert!(looks < 10, "the reads end");
    }
    assert!(looks >= 2, "the log is read in parts");
    let file = OpenOptions::new().write(true).open(&log.path).expect("the log opens");
    file.set_len(MOST_BACKLOG * 3).expect("the log grows");
    let (_, skipped) = log.log.read(&mut log.cursor).expect("the log is readable");
    assert!(skipped > MOST_BACKLOG, "{skipped}");
    for _ in 0..3 {
        log.look();
    }
    log.write(b"\nhere\n");
    assert_eq!(log.look().last().map(String::as_str), Some("here"));
}
