//! The files of the state directory: the admin's credentials, and the ids of the cloud and the controller.

mod cloud;
mod controller;
mod credentials;

pub use cloud::{check_cloud, check_database, check_known_cloud, remember_cloud};
pub use controller::controller_id;
pub use credentials::Credentials;
pub use kilonova_program::state::{StateDir, same, write_secret, write_service_secret};
