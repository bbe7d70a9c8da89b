//! Every operation, with a crash before and after each of its writes.
//!
//! `flow` describes an operation and its allowed results, `matrix` runs it with a crash at each write,
//! and the other files list the operations.

mod flow;
mod matrix;

mod boots;
mod deletes;
mod device_orders;
mod in_place;
mod islands;
mod moves;
mod neutron;
mod power;

use flow::{Act, Before, Flow, flow};
