//! Explains one server, or one host that is being drained, to an operator.
//!
//! ```text
//!   server ─► story: everything stored about it, on one snapshot
//!               ├─ words:  the event that its operation waits for
//!               ├─ room:   where it could be scheduled now, if it has no host
//!               └─ next:   the next action, derived from the story alone
//! ```
//!
//! This module must never change anything, and never guess: it reports stored facts only.

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

/// Microseconds without progress after which an operation counts as stuck.
pub const SLOW: i64 = 60_000_000;
