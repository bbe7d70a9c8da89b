//! What the service does, apart from how it is asked. Each function is one transaction's work.

pub(crate) mod arqs;
pub(crate) mod attributes;
pub(crate) mod devices;
pub(crate) mod grammar;
pub(crate) mod patch;
pub(crate) mod profiles;
pub(crate) mod program;
