//! How far a drain is: on a terminal one line that is written over, below lines that stay; without one,
//! lines alone.

use std::io::{IsTerminal, Write};

/// Where it is shown: standard error, so that what is printed in the end can be read by programs.
pub struct Board {
    terminal: bool,
    shown: bool,
}

impl Board {
    /// On standard error.
    pub fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), shown: false }
    }

    /// A line that stays.
    pub fn line(&mut self, text: &str) {
        let start = if self.shown { "\r\u{1b}[K" } else { "" };
        self.shown = false;
        self.write(&format!("{start}{text}\n"));
    }

    /// The line that is written over.
    pub fn status(&mut self, text: &str) {
        if self.terminal {
            self.shown = true;
            let short: String = text.chars().take(110).collect();
            self.write(&format!("\r\u{1b}[K{short}"));
        }
    }

    /// Takes the last line away.
    pub fn end(&mut self) {
        if self.shown {
            self.shown = false;
            self.write("\r\u{1b}[K");
        }
    }

    fn write(&self, text: &str) {
        let mut out = std::io::stderr().lock();
        // Nobody is there to be told when the terminal is gone.
        drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
    }
}
