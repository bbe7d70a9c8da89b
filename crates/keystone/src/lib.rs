//! A client of an external Keystone and of the services of its catalog: logging in, validating tokens,
//! and requests to other services.
//!
//! ```text
//!   http       an HTTP client with TLS, trusting the system's or a configured authority
//!   session    a user's token, obtained by a login and renewed before it expires
//!   service    requests to another service of the catalog, with a login or for a user
//!   validator  authenticates requests of our services with tokens of the external Keystone
//! ```
//!
//! It must never log a password or a token, and never accept a token that Keystone did not confirm.
//! Its caches are bounded in size and time.

mod cache;
mod error;
mod http;
mod service;
mod session;
mod token;
mod validator;

pub use error::Error;
pub use http::{Answer, Http, RequestBody, Streaming};
pub use service::{Caller, Endpoint, Retries, Service};
pub use session::{CredentialName, Credentials, Ids, Login, Named, Session, SessionToken};
pub use validator::{Validator, ValidatorOptions};
