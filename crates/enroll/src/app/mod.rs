//! The operations of joining.

pub(crate) mod authority;
pub(crate) mod give;
pub(crate) mod names;
pub(crate) mod revocations;
pub(crate) mod revoke;
pub(crate) mod tokens;
