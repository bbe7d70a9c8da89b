//! The identity service over HTTP, in process, on every database at hand.

mod cloud;
mod credentials;
mod groups;
mod login;
mod management;
mod registered;
mod starvation;
mod statements;
mod tokens;
mod trusts;
