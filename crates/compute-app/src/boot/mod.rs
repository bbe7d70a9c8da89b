//! Boots servers: resolves the request, plans, and claims everything in one transaction.
//!
//! ```text
//!   resolve (one read) ─► plan (memory) ─► claim: server, allocations, ARQs, handles, document,
//!                              ▲                  operation in ONE transaction ─► 202
//!                              └── other requests claimed everything planned ─┘
//!   no host has room, `[rebalance] on_refusal`: the server waits for moves, then plan and claim again
//! ```

mod claim;
mod guest_metadata;
mod image_traits;
pub mod machine;
mod near;
mod port_claims;
mod query;
mod request;
mod run;
mod tally;
mod topology;
mod waiting;

use claim::claim_along;
pub use claim::{Initiator, Placement, Wanted, abandon, claim, desired, release};
pub(crate) use claim::{
    abandon_of, actor_of, consumer_of, expect_held, expect_initiator_of, held, initiator_of,
    reclaim, release_held,
};
pub use guest_metadata::{GuestSource, dedicated_cpus, guest_metadata};
pub(crate) use guest_metadata::{group_names, guest_metadata_with};
pub use image_traits::check_image_traits;
pub(crate) use port_claims::{change_claims, claim_again, claim_port, release_port};
pub use query::{PortResources, ProfileGroups, Profiles, on_host, query_of};
pub use request::BootRequest;
pub use run::boot;
pub use tally::Tally;
pub use waiting::{GRACE, end_overdue};
