//! Evaluates rules in the language of oslo.policy, so that an operator's `policy.yaml` works
//! unchanged.
//!
//! Pure: it maps texts and values to decisions. It reads no files, and has no knowledge of HTTP or
//! of the services' operations. Upstream accepts invalid rules at start and then silently refuses
//! every request; here [`Policy::build`] reports them at start.

mod caller;
mod check;
mod error;
mod file;
mod parse;
mod pattern;
mod policy;
mod renamed;
mod share;

pub use caller::{ATTRIBUTES, Credentials, Scope, Target};
pub use check::{Check, FieldMatch};
pub use error::{Error, Problem};
pub use file::{Override, Written, read, read_from};
pub use parse::{parse, parse_list};
pub use pattern::Pattern;
pub use policy::{Defaults, Lack, Policy, Rule};
pub use renamed::{Renamed, renamed};
pub use share::share;
