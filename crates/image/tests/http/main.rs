//! The image service over HTTP, in process, on every database at hand.

mod changes;
mod data;
mod forms;
mod limits;
mod lists;
mod members;
mod shelf;
mod slow;
mod visibility;
