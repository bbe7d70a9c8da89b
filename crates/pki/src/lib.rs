//! The cloud's certificate authority, and the TLS settings of hosts and the controller.
//!
//! Owns the creation and parsing of certificates, join tokens, and the TLS settings of both sides.
//! It must never read a file or a clock: keys are passed as text, and the caller passes the time.
//!
//! A host's certificate is valid as client and server, which libvirt needs for `qemu+tls`. Only the
//! controller's certificate has the name [`CONTROL_PLANE`], so no host can impersonate it.

mod authority;
mod certificate;
mod error;
mod fingerprint;
mod listed;
mod request;
mod revocation;
mod tls;
mod token;
mod trust;

pub use authority::{Authority, HostCertificateParams};
pub use certificate::{Certificate, all_der, fingerprint, is_issued_by, read, read_der};
pub use error::Error;
pub use fingerprint::Fingerprint;
pub use listed::of_listed;
pub use request::{Request, check_host, check_new_host};
pub use revocation::Revocation;
pub use rustls::pki_types::CertificateDer;
pub use tls::{Own, anonymous, certified, joining, of_users, own, server, trusting};
pub use token::{Secret, Token};
pub use trust::Trust;

/// The name in the controller's certificates and in no host's. A host expects it regardless of
/// the address to which it connects.
pub const CONTROL_PLANE: &str = "control-plane.kilonova.internal";
