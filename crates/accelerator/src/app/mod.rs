//! The operations of the service, independent of HTTP. Each function does the work of one
//! transaction.

pub(crate) mod arqs;
pub(crate) mod attributes;
pub(crate) mod devices;
pub(crate) mod grammar;
pub(crate) mod patch;
pub(crate) mod profiles;
pub(crate) mod program;
