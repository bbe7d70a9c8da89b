//! The files of the state directory: the admin's credentials, and the id of the controller.

mod controller;
mod credentials;

pub use controller::controller_id;
pub use credentials::Credentials;
pub use kilonova_program::state::{StateDir, same, write_secret};
