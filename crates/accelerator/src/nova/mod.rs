//! Notifies an external Nova of bound requests, and queries whether an instance still exists. Our
//! own compute service binds within its own transaction and needs no message.

mod address;
mod http;
mod token;

use std::future::Future;
use std::pin::Pin;

use kilonova_ids::{ArqId, ServerId};

use crate::states::EventStatus;

pub use self::address::Address;
pub use self::http::HttpNova;
pub use self::token::Credentials;

/// One `accelerator-request-bound` event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The instance.
    pub server: ServerId,
    /// The request.
    pub arq: ArqId,
    /// The result of the binding.
    pub status: EventStatus,
}

/// The reason why Nova did not accept events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NovaError {
    /// Temporary: Nova is unavailable or refuses our credentials.
    Temporary(String),
    /// Permanent.
    Permanent(String),
}

/// The future of a delivery.
pub type Delivery<'a> = Pin<Box<dyn Future<Output = Result<(), NovaError>> + Send + 'a>>;

/// Nova's answer about the existence of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// Nova has it.
    Exists,
    /// Nova has no such instance, and the caller may see the instances of all projects.
    Absent,
}

/// The future of a query about an instance.
pub type PresenceQuery<'a> = Pin<Box<dyn Future<Output = Result<Presence, NovaError>> + Send + 'a>>;

/// An external Nova, which accepts events and reports which instances exist.
pub trait Nova: Send + Sync + 'static {
    /// Queries whether Nova has an instance. Any answer that is not clear is an error.
    fn has(&self, server: ServerId) -> PresenceQuery<'_>;

    /// Delivers the events of one bind. A server that has no host yet, or no longer exists, is not
    /// an error.
    fn deliver<'a>(&'a self, events: &'a [Event]) -> Delivery<'a>;
}
