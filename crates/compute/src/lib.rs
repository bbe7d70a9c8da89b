//! The HTTP API of Nova: servers, flavors, key pairs, hosts and quotas.
//!
//! The crate translates between requests and the operations of `kilonova-compute-app`. It must
//! contain no business logic and no SQL.

pub mod api;

pub use api::{
    image_operations, operations, reached_in_project, routes, service, service_up_to,
    version_documents,
};
