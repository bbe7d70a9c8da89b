//! Every flow, with a death before and after each of its writes.
//!
//! `flow` says what is done and what may come of it, `matrix` does it over and over, each time with
//! another death, and the files below name the flows.

mod flow;
mod matrix;

mod boots;
mod deletes;
mod device_orders;
mod moves;
mod powers;
mod stays;

use flow::{Act, Before, Flow, flow};
