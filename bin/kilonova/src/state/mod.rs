//! The admin's credentials in the state directory.

mod credentials;

pub use credentials::Credentials;
pub use kilonova_program::state::{StateDir, same, write_secret};
