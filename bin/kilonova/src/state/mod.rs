//! What the control plane keeps in its state directory besides keys and data: the admin's credentials.

mod credentials;

pub use credentials::Credentials;
pub use kilonova_program::state::{StateDir, same, write_secret};
