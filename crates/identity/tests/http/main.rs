//! The identity service over HTTP, in process, on every database at hand.

mod cloud;
mod credentials;
mod login;
mod management;
mod statements;
mod tokens;
