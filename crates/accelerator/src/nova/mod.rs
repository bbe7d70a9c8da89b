//! What a Nova of somebody else is told and asked: that a request is bound, and whether it still has an
//! instance. Our own compute service binds within its own transaction and needs no telling.

mod address;
mod http;
mod token;

use std::future::Future;
use std::pin::Pin;

use kilonova_ids::{ArqId, ServerId};

pub use self::address::Address;
pub use self::http::HttpNova;
pub use self::token::Credentials;

/// One `accelerator-request-bound`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The instance.
    pub server: ServerId,
    /// The request.
    pub arq: ArqId,
    /// `completed` or `failed`.
    pub status: String,
}

/// Why events were not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// It may work later: Nova is away, or does not let us in.
    Later(String),
    /// It never will.
    Never(String),
}

/// The future of a delivery.
pub type Telling<'a> = Pin<Box<dyn Future<Output = Result<(), Trouble>> + Send + 'a>>;

/// Whether an instance is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// Nova has it.
    There,
    /// Nova has none of that id, and says so to somebody who may see those of all projects.
    Gone,
}

/// The future of a question about an instance.
pub type Asking<'a> = Pin<Box<dyn Future<Output = Result<Presence, Trouble>> + Send + 'a>>;

/// Somebody who takes events and knows which instances there are.
pub trait Nova: Send + Sync + 'static {
    /// Whether Nova has an instance. Everything but a clear answer is trouble.
    fn has(&self, server: ServerId) -> Asking<'_>;

    /// Delivers the events of one bind. A server that has no host yet, or is gone, is no trouble.
    fn tell<'a>(&'a self, events: &'a [Event]) -> Telling<'a>;
}
