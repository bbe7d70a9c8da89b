//! A client of an external Keystone: logging in, and validating tokens.
//!
//! ```text
//!   http       an HTTP client with TLS, trusting the system's or a configured authority
//!   session    a user's token, obtained by password and renewed before it expires
//!   validator  authenticates requests of our services with tokens of the external Keystone
//! ```
//!
//! It must never log a password or a token, and never accept a token that Keystone did not confirm.
//! Its caches are bounded in size and time.

mod cache;
mod error;
mod http;
mod session;
mod token;
mod validator;

pub use error::Error;
pub use http::{Answer, Http};
pub use session::{DomainIds, Login, Session, SessionToken};
pub use validator::{Validator, ValidatorOptions};
