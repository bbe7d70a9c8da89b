//! Policy enforcement at the routes of a service: a route cannot be registered without a rule, and
//! only this crate turns a request's [`kilonova_wire::Context`] into the credentials of rules.
//!
//! A service declares its routes with [`Routes`]; each method of each path names its [`Guard`]. The
//! guard decides before the handler runs, so that an unauthorized caller cannot make the service read
//! a body. If a rule depends on the target, the handler enforces it through [`Caller`] after the
//! lookup.
//!
//! This crate must never know an operation of any service, nor the database.

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
