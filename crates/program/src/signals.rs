//! The signals that stop a program: SIGTERM and SIGINT (Ctrl-C).
//!
//! This module must never decide how to stop: the waiting program does.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::Failure;

/// Handlers of SIGTERM and SIGINT.
///
/// Once they are installed, neither signal kills the process, so a program creates them before it
/// reports that it is ready.
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Installs the handlers.
    ///
    /// # Errors
    /// If the kernel refuses a handler.
    pub fn handle() -> Result<Self, Failure> {
        let refused = |e| Failure::failed("cannot handle SIGTERM and SIGINT", e);
        Ok(StopSignals {
            terminate: signal(SignalKind::terminate()).map_err(refused)?,
            interrupt: signal(SignalKind::interrupt()).map_err(refused)?,
        })
    }

    /// Returns at the next signal, or immediately if one has arrived since the last call. Dropping
    /// the future loses no signal.
    pub async fn recv(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The set of signals that this process handles, as a bit mask.
    fn handled() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").expect("the status is readable");
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        u64::from_str_radix(mask.expect("the mask is present").trim(), 16)
            .expect("the mask is hexadecimal")
    }

    #[tokio::test]
    async fn both_signals_are_handled_before_anybody_waits() {
        let mut signals = StopSignals::handle().expect("the handlers are installed");
        for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
            assert_ne!(handled() & (1 << (signal.as_raw() - 1)), 0, "{signal:?}");
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, signal).expect("the signal is sent");
            signals.recv().await;
        }
    }
}
