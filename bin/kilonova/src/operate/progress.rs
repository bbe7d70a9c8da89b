//! The progress of a long command: on a terminal, a status line that is overwritten below permanent lines;
//! otherwise permanent lines only.

use std::io::{IsTerminal, Write};

/// The display, on standard error, so that programs can read the result on standard output.
pub struct ProgressDisplay {
    terminal: bool,
    shown: bool,
}

impl ProgressDisplay {
    /// A display on standard error.
    pub fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), shown: false }
    }

    /// Prints a permanent line.
    pub fn line(&mut self, text: &str) {
        let start = if self.shown { "\r\u{1b}[K" } else { "" };
        self.shown = false;
        self.write(&format!("{start}{text}\n"));
    }

    /// Overwrites the status line.
    pub fn status(&mut self, text: &str) {
        if self.terminal {
            self.shown = true;
            let short: String = text.chars().take(110).collect();
            self.write(&format!("\r\u{1b}[K{short}"));
        }
    }

    /// Clears the status line.
    pub fn end(&mut self) {
        if self.shown {
            self.shown = false;
            self.write("\r\u{1b}[K");
        }
    }

    fn write(&self, text: &str) {
        let mut out = std::io::stderr().lock();
        // Ignored: the terminal may be gone.
        drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
    }
}
