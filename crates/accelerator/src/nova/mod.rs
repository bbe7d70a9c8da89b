//! What a Nova of somebody else is told: that a request is bound. Our own compute service binds
//! within its own transaction and needs no telling.

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

/// Somebody who takes events.
pub trait Nova: Send + Sync + 'static {
    /// Delivers the events of one bind. A server that has no host yet, or is gone, is no trouble.
    fn tell<'a>(&'a self, events: &'a [Event]) -> Telling<'a>;
}
