//! Logs go to standard error: text on a terminal, otherwise JSON, unless the operator chooses.
//! `RUST_LOG` filters them.
//!
//! A line that cannot be written (the disk is full, the reader of a pipe has ended) is dropped and
//! counted. It never disturbs the work that logs it.

use std::borrow::Cow;
use std::io::{IsTerminal, Write};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing_subscriber::EnvFilter;

/// The number of lines that could not be written.
static LOST: AtomicU64 = AtomicU64::new(0);

/// The number of lines of this process that could not be written.
pub fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// One line of text.
    Text,
    /// One JSON object per line.
    Json,
}

impl LogFormat {
    /// The valid values.
    pub const EXPECTED: &str = "text or json";

    /// The default format for the current standard error.
    fn fitting() -> Self {
        if std::io::stderr().is_terminal() { Self::Text } else { Self::Json }
    }
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(format!("{other} is not a valid value; expected {}", Self::EXPECTED)),
        }
    }
}

/// Writes lines and counts those that cannot be written.
struct Lines<W>(W);

impl<W: Write> Write for Lines<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }

    /// The subscriber calls this once for each event. Line breaks within the event, such as those of a message that quotes
    /// a request, are escaped: a reader takes each line for an event.
    fn write_all(&mut self, event: &[u8]) -> std::io::Result<()> {
        let written = self.0.write_all(&one_line(event));
        if written.is_err() {
            LOST.fetch_add(1, Ordering::Relaxed);
        }
        written
    }
}

/// The event without line breaks before its end.
fn one_line(event: &[u8]) -> Cow<'_, [u8]> {
    let (body, end) = event.split_at(event.len() - usize::from(event.ends_with(b"\n")));
    if !body.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
        return Cow::Borrowed(event);
    }
    let mut line = Vec::with_capacity(event.len() + 16);
    for byte in body {
        match byte {
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            byte => line.push(*byte),
        }
    }
    line.extend_from_slice(end);
    Cow::Owned(line)
}

/// Starts logging. Without a format, it depends on whether standard error is a terminal.
pub fn start(debug: bool, format: Option<LogFormat>) {
    let default = if debug { "info,kilonova=debug,kilonova_wire=debug" } else { "info" };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    // Its debug lines contain statement parameters, including password hashes.
    let filter = match "tokio_postgres=info".parse() {
        Ok(quiet) => filter.add_directive(quiet),
        Err(_) => filter,
    };
    // To report a line that it cannot write, the subscriber would panic on the same standard error.
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Lines(std::io::stderr()))
        .log_internal_errors(false);
    let started = match format.unwrap_or_else(LogFormat::fitting) {
        // Colours are only for terminals, and NO_COLOR turns them off.
        LogFormat::Text => {
            let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            logs.with_target(false).with_ansi(colours).try_init()
        }
        LogFormat::Json => logs.json().flatten_event(true).try_init(),
    };
    if let Err(error) = started {
        drop(writeln!(std::io::stderr(), "kilonova: could not start logging: {error}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A full disk.
    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_event_is_one_line() {
        let written = |event: &str| {
            let mut lines = Lines(Vec::new());
            lines.write_all(event.as_bytes()).expect("a vector has room");
            String::from_utf8(lines.0).expect("the line is text")
        };
        assert_eq!(written("INFO a\tb\n"), "INFO a\tb\n");
        assert_eq!(
            written("INFO no match\n\nOn instance/name\r\nstatus=400\n"),
            "INFO no match\\n\\nOn instance/name\\r\\nstatus=400\n"
        );
        assert_eq!(written("a\nb"), "a\\nb");
        assert_eq!((written(""), written("\n")), (String::new(), "\n".to_owned()));
    }

    #[test]
    fn a_line_that_cannot_be_written_is_counted() {
        let before = lost();
        assert!(Lines(Vec::new()).write_all(b"a line\n").is_ok());
        assert_eq!(lost(), before);
        assert!(Lines(Full).write_all(b"a line\n").is_err());
        assert_eq!(lost(), before + 1);
    }
}
