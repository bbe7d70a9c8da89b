//! The operations of enrollment.

pub(crate) mod authority;
pub(crate) mod inspection;
pub(crate) mod issue;
pub(crate) mod names;
pub(crate) mod revocations;
pub(crate) mod revoke;
pub(crate) mod tokens;
pub(crate) mod trust;
