//! What operators do to a running cloud from their desk: have a server explained, empty a host.
//!
//! All of it goes over the HTTP API with the operator's own credentials, so policy holds here as
//! everywhere; nothing here may open a database.

pub mod drain;
pub mod explain;
pub mod find;
pub mod text;
