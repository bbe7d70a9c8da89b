//! What an operator wants to know of one server, or of one host that is to be emptied.
//!
//! ```text
//!   server ─► story: all that is kept of it, on one snapshot
//!               ├─ words:  what its operation waits for, in plain words
//!               ├─ room:   where it could go now, when it is nowhere
//!               └─ next:   what to do, from the story alone
//! ```
//!
//! It must never change anything, and never guess: what is not kept is not told.

mod host;
mod next;
mod owner;
mod room;
mod story;
mod words;

pub use host::{Guest, HostStory, tell_host};
pub use next::{next, summary};
pub use owner::{owner_next, owner_summary};
pub use room::Room;
pub use story::{Account, HostNow, Story, tell};
pub use words::{Awaited, awaited};

/// Microseconds after which an operation that has not moved is not just slow.
pub const SLOW: i64 = 60_000_000;
