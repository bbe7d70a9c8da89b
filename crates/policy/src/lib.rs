//! Who may do what, in the language of oslo.policy, so that an operator's `policy.yaml` carries
//! over as it is.
//!
//! Pure: texts and values in, yes or no out. It never reads a file, knows no operation of any
//! service and no HTTP. Upstream lets what it does not understand pass at start and then refuses
//! every request in silence; here [`Policy::build`] refuses it at start, with its name.

mod check;
mod error;
mod file;
mod parse;
mod pattern;
mod policy;
mod share;
mod who;

pub use check::{Check, Wanted};
pub use error::{Error, Problem};
pub use file::{Override, Written, read, read_from};
pub use parse::{parse, parse_list};
pub use pattern::Pattern;
pub use policy::{Defaults, Policy, Rule};
pub use share::share;
pub use who::{ATTRIBUTES, Credentials, Scope, Target};
