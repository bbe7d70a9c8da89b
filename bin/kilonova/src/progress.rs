//! A progress display: a line that is overwritten on a terminal, otherwise one line per part.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(100);

/// The display.
pub struct Progress {
    terminal: bool,
    what: &'static str,
    done: usize,
    of: usize,
    shown: Instant,
}

impl Progress {
    /// A display on standard error.
    pub fn new() -> Self {
        let terminal = std::io::stderr().is_terminal();
        Self { terminal, what: "", done: 0, of: 0, shown: Instant::now() }
    }

    /// Begins a part.
    pub fn begin(&mut self, what: &'static str, of: usize) {
        self.end();
        (self.what, self.done, self.of) = (what, 0, of);
    }

    /// Counts one item.
    pub fn one(&mut self) {
        self.many(1);
    }

    /// Counts items.
    pub fn many(&mut self, items: usize) {
        self.done += items;
        if self.terminal && self.shown.elapsed() > EVERY {
            self.show();
        }
    }

    /// Ends the last part.
    pub fn end(&mut self) {
        if self.what.is_empty() {
            return;
        }
        self.show();
        if self.terminal {
            drop(writeln!(std::io::stderr()));
        }
        self.what = "";
    }

    fn show(&mut self) {
        self.shown = Instant::now();
        let mut out = std::io::stderr().lock();
        let (start, end) = if self.terminal { ("\r", "") } else { ("", "\n") };
        let line = format!("{start}{}: {} of {}{end}", self.what, self.done, self.of);
        drop(out.write_all(line.as_bytes()).and_then(|()| out.flush()));
    }
}
