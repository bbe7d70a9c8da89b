//! The image service over HTTP, in process, on every database at hand.

mod changes;
mod data;
mod lists;
mod shelf;
mod slow;
mod visibility;
