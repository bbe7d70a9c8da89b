//! The policy at the door of a service: routes that cannot be registered without a rule, and the one
//! place where a request's [`kilonova_wire::Context`] becomes what rules see.
//!
//! A service declares its routes with [`Routes`]; each method of each path names its [`Guard`]. The
//! door decides before the handler runs, so that whoever may not do a thing cannot make the service
//! read a body for it. A rule that depends on the thing that is found is asked again by the handler,
//! through [`Caller`].
//!
//! It must never know an operation of any service, nor the database.

mod caller;
mod enforcer;
mod guard;
mod routes;
mod table;

pub use caller::Caller;
pub use enforcer::{Enforcer, credentials, refusal};
pub use guard::{Guard, Operation, undefined};
pub use routes::{Guarded, Routes, any, delete, get, head, on, patch, post, put};
pub use table::{changed, rule};
