//! The compute API against upstream's OpenAPI document: every operation at every microversion at
//! which it changes. Prints the coverage; an operation without a row fails.

mod api;
mod cloud;
mod invalid_bodies;
mod recording;
mod replay;
mod rows;
mod table;
mod unsupported;
