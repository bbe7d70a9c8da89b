//! The phases in which a controller drains and stops. They determine when it answers the waiting polls
//! of hosts.
//!
//! A poll is answered when the next phase begins. Each host therefore learns once per phase that it
//! must switch to another controller, and never polls in a tight loop. The controller's process decides
//! when a phase begins.

use std::future::pending;

use tokio::sync::watch;

/// The phases of a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It serves requests.
    Serving,
    /// It answers every request and closes the request's connection, so that clients move to another
    /// controller.
    Draining,
    /// It accepts no connection, and completes the open requests.
    Stopping,
}

/// Follows the phase of this controller.
#[derive(Debug, Clone)]
pub struct Drain(watch::Receiver<Phase>);

impl Drain {
    /// The sender that advances the phase, and its follower, for a controller that serves requests.
    pub fn serving() -> (watch::Sender<Phase>, Self) {
        let (sender, receiver) = watch::channel(Phase::Serving);
        (sender, Self(receiver))
    }

    /// The current phase.
    pub fn phase(&self) -> Phase {
        *self.0.borrow()
    }

    /// Returns once this phase, or a later one, has begun.
    pub async fn reached(&mut self, phase: Phase) {
        if self.0.wait_for(|now| *now >= phase).await.is_err() {
            pending().await
        }
    }

    /// Returns when a poll that begins now must be answered.
    pub async fn next(mut self) {
        match self.phase() {
            Phase::Serving => self.reached(Phase::Draining).await,
            Phase::Draining | Phase::Stopping => self.reached(Phase::Stopping).await,
        }
    }
}
