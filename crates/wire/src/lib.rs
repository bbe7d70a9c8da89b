//! The parts that all HTTP services share: the request context, microversions, faults and their
//! dialects, bodies and schemas, paging, and the middleware around a service's routes.
//!
//! This crate must never depend on the resources of a service or on the database.

pub mod accept;
pub mod auth;
pub mod base;
pub mod body;
pub mod certified_host;
pub mod context;
pub mod dialect;
pub mod fault;
pub mod microversion;
pub mod mount;
pub mod noauth;
pub mod origin;
pub mod paging;
pub mod query;
pub mod refusal;
mod rewritten;
pub mod schema;
pub mod text;
pub mod time;

pub use auth::Authenticator;
pub use base::Base;
pub use body::{Body, JsonBody, SmallJson, whole as read_body};
pub use certified_host::CertifiedHost;
pub use context::{Context, UserToken};
pub use dialect::Dialect;
pub use fault::Fault;
pub use microversion::{Microversion, Negotiate};
pub use mount::{Service, mount};
pub use origin::{EndsInSlash, Origin, PeerAddress};
pub use refusal::{IntoRefusal, Refusal};
pub use rewritten::rewritten;
