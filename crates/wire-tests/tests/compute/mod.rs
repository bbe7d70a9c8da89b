//! The compute API against upstream's OpenAPI document: every operation at every microversion at
//! which it changes. Prints the coverage; an operation without a row fails.

mod api;
mod bad;
mod cloud;
mod outside;
mod recording;
mod replay;
mod rows;
mod table;
