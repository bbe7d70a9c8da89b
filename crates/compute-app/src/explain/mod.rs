//! Explains one server, or one host that is being drained, to an operator.
//!
//! ```text
//!   server: everything stored about it, on one snapshot
//!     ├─ words:  the event that its operation waits for
//!     ├─ room:   the hosts that could take it now, if it has none
//!     └─ next:   the next action, derived only from the explanation
//! ```
//!
//! This module must never change anything, and never guess: it reports stored facts only.

mod host;
mod next;
mod owner;
mod room;
mod server;
mod words;

pub use host::{Guest, HostExplanation, explain_host};
use jiff::SignedDuration;
pub use next::{next, summary};
pub use owner::{owner_next, owner_summary};
pub use room::Room;
pub use server::{ConsumerAllocations, HostNow, ServerExplanation, explain_server};
pub(crate) use server::{actions, plugging};
pub(crate) use words::failure;
pub use words::{Awaited, awaited};

/// The time without progress after which an operation counts as stuck.
pub const SLOW: SignedDuration = SignedDuration::from_mins(1);
