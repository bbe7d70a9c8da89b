//! The system's own certificate authority, and what hosts and the control plane prove by it.
//!
//! Owns how certificates are made and read, the words that let a host join, and the TLS settings of
//! both sides. It must never read a file or a clock of its own: keys come and go as text, and time is
//! said by the caller (microseconds since 1970).
//!
//! A host's certificate serves both directions, as libvirt wants it for `qemu+tls`; so that no host
//! can pass for the control plane, only the control plane's own has [`CONTROL_PLANE`] as a name.

mod authority;
mod certificate;
mod error;
mod fingerprint;
mod request;
mod revocation;
mod tls;
mod token;

pub use authority::{Authority, Wanted};
pub use certificate::{Certificate, fingerprint, read, read_der};
pub use error::Error;
pub use fingerprint::Fingerprint;
pub use request::{Request, check_host, check_new_host};
pub use revocation::Revocation;
pub use tls::{Own, anonymous, certified, joining, of_users, own, server, trusting};
pub use token::{Secret, Token};

/// The name that certificates of the control plane have, and no host's: what a host asks for,
/// whatever address it dials.
pub const CONTROL_PLANE: &str = "control-plane.kilonova.internal";
