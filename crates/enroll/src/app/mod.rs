//! What is done about joining.

pub(crate) mod authority;
pub(crate) mod give;
pub(crate) mod revoke;
pub(crate) mod tokens;
