//! The metadata service of a host: the requests that the host's networks pass to the agent, and the
//! agent's answers.
//!
//! The networks identify a requester only by network and address, and guarantee that only the guest
//! with that address can send a request from it and read the answer. The agent knows which guest
//! has the address. This module must never depend on sockets or on the wire format of requests.

use std::net::IpAddr;
use std::pin::Pin;

use kilonova_guest_metadata::{ContentType, Vendordata, texts};
use kilonova_ids::NetworkId;

/// A request from a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestRequest {
    /// The network from which the guest sends the request.
    pub network: NetworkId,
    /// The guest's address on this network.
    pub from: IpAddr,
    /// The method.
    pub method: GuestMethod,
    /// The path, without a query.
    pub path: String,
}

/// The method of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuestMethod {
    /// Reads metadata.
    Get,
    /// Stores a password: the body, or `None` if the body is larger than the longest permitted
    /// password.
    Post(Option<Vec<u8>>),
    /// Anything else.
    Other,
}

/// The status of an answer. Nova returns the same statuses to guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestStatus {
    /// 200.
    Found,
    /// 400.
    Bad,
    /// 404.
    NotFound,
    /// 409.
    Conflict,
    /// 500.
    Failed,
    /// 503: the guest may retry.
    Unavailable,
}

/// An answer to a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestAnswer {
    /// The status.
    pub status: GuestStatus,
    /// The type of the body.
    pub kind: ContentType,
    /// The body.
    pub body: Vec<u8>,
}

impl GuestStatus {
    /// Its code.
    pub const fn code(self) -> u16 {
        match self {
            Self::Found => 200,
            Self::Bad => 400,
            Self::NotFound => 404,
            Self::Conflict => 409,
            Self::Failed => 500,
            Self::Unavailable => 503,
        }
    }
}

impl GuestAnswer {
    /// An answer with a plain-text body.
    pub fn text(status: GuestStatus, text: &str) -> Self {
        Self { status, kind: ContentType::Text, body: text.as_bytes().to_vec() }
    }

    /// The answer while the service is unavailable.
    pub fn unavailable() -> Self {
        Self::text(GuestStatus::Unavailable, texts::UNKNOWN)
    }
}

/// The future of [`GuestRequests::answer`].
pub type GuestFuture<'a> = Pin<Box<dyn Future<Output = GuestAnswer> + Send + 'a>>;

/// Answers the guests of a host.
pub trait GuestRequests: Send + Sync + 'static {
    /// Answers a request from a guest.
    fn answer(&self, request: GuestRequest) -> GuestFuture<'_>;
}

/// The operator's settings of the metadata service of a host.
#[derive(Debug, Clone, PartialEq)]
pub struct MetadataSettings {
    /// `[api] dhcp_domain`: the domain that is appended to host names without one.
    pub dhcp_domain: String,
    /// The operator's data for every guest.
    pub vendordata: Vendordata,
}

impl Default for MetadataSettings {
    fn default() -> Self {
        Self { dhcp_domain: "novalocal".into(), vendordata: Vendordata::default() }
    }
}
