//! Connection handling of the listeners, one for users and one for enrolled hosts. Each has its own
//! connection limit, so that neither exhausts the other's.

mod certificate;
mod forwarded;
mod pace;
mod pool;
mod users;

pub(super) use certificate::ServerCertificate;
pub use certificate::{CertificateProblem, examine_certificate};
pub(super) use pace::{Busy, Paced};
pub(super) use pool::{Full, PerAddress, Pool, fairness_key};
pub(super) use users::RequestOrigin;
