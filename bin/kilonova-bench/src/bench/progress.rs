//! Progress: one line that is overwritten on a terminal, otherwise one line for each part.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(250);

/// The progress of one part; several tasks may update it.
pub struct Progress {
    done: Arc<AtomicUsize>,
    shown: Option<tokio::task::JoinHandle<()>>,
}

impl Progress {
    /// Begins a part of `of` steps, on standard error.
    pub fn begin(what: impl Into<String>, of: usize) -> Self {
        let (what, done) = (what.into(), Arc::new(AtomicUsize::new(0)));
        if !std::io::stderr().is_terminal() {
            eprintln!("kilonova-bench: {what}");
            return Self { done, shown: None };
        }
        let (begun, counted) = (Instant::now(), Arc::clone(&done));
        let shown = tokio::spawn(async move {
            loop {
                let (done, seconds) = (counted.load(Ordering::Relaxed), begun.elapsed().as_secs());
                let of = if of > 1 { format!(": {done} of {of}") } else { String::new() };
                write(&format!("\r\x1b[Kkilonova-bench: {what}{of} ({seconds} s)"));
                tokio::time::sleep(EVERY).await;
            }
        });
        Self { done, shown: Some(shown) }
    }

    /// Counts one step.
    pub fn step(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(shown) = self.shown.take() {
            shown.abort();
            write("\r\x1b[K");
        }
    }
}

fn write(text: &str) {
    let mut out = std::io::stderr().lock();
    drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}
