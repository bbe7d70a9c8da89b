//! A Keystone that is not ours: logging in to it, and asking it who a token belongs to.
//!
//! ```text
//!   http       one HTTP client, TLS with the system's or a named authority
//!   session    a user's token, got by password and renewed before it ends
//!   validator  the door of our services: tokens of callers are checked over there
//! ```
//!
//! It must never log a password or a token, and never believe a token that Keystone did not answer
//! for. What it remembers is bounded in size and in time.

mod cache;
mod error;
mod http;
mod session;
mod token;
mod validator;

pub use error::Error;
pub use http::{Answer, Http};
pub use session::{DomainIds, Held, Login, Session};
pub use validator::{Options, Validator};
