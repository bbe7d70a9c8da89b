//! The change log: propagates the commits of one controller to the memory of the others.
//!
//! A transaction that changes data that controllers keep in memory appends an [`Entry`]: a
//! [`Topic`], a subject, and for some topics a number. Each process has one [`Follower`]. It polls
//! the log and passes new entries to its [`Subscriber`]s, which read the rows again or apply the
//! number. An entry is a hint: applying it twice, late or after newer ones is correct.
//!
//! SQLite has one controller, whose commit hooks update its memory. Only entries of provider trees
//! are written there, because their numbers order the hooks.
//!
//! This crate owns the table `change_log`. It must never know the tables of a service.

mod db;
mod follower;
mod topic;

pub use db::{
    Behind, Entry, LOG, MIGRATIONS, POSTGRES_STATEMENTS, STATEMENTS, append, append_tree,
    ask_append_tree, last, number_of, prune,
};
pub use follower::{Applied, Failure, Followed, Follower, Progress, Subscriber};
pub use topic::Topic;
