//! The doors of the process: one for users, one for hosts that have joined. Each has its own listener
//! and its own connections, so that neither takes the other's.

mod certificate;
mod forwarded;
mod pace;
mod pool;
mod users;

pub(super) use certificate::Shown;
pub(super) use pace::{Busy, Paced};
pub(super) use pool::{Full, PerAddress, Pool};
pub(super) use users::Users;
