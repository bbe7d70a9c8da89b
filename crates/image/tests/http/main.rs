//! The image service over HTTP, in process, on every available database.

mod changes;
mod data;
mod forms;
mod limits;
mod lists;
mod members;
mod shelf;
mod slow;
mod visibility;
