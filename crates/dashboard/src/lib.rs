//! The dashboard: the cloud in a browser, as HTML that the controller renders.
//!
//! ```text
//!   browser ── pages, forms ──►  api/    one file per page: routes, request, answer
//!                                 │ ▲
//!                                 │ └─── views/  HTML; texts.rs has every sentence
//!                                 ▼
//!                                app/    session (a sealed cookie), cloud, live
//!                                 │
//!                                 ▼  the user's token
//!             the routers of the services, in this process
//! ```
//!
//! A page calls the services' own HTTP APIs with its user's token, so policy, quotas and validation are the same
//! as for every client. Only the floor is too large for that: its page asks the API whether the user may see the
//! floor, and then reads the hosts from the compute service's application layer. A session is stored only in its
//! cookie, so any controller can serve the next request, and no state outlives a process. The crate must never open the
//! database, and never decide what a user may see or do; it only hides what the service would refuse.

mod api;
mod app;
mod assets;
mod error;
mod texts;
mod views;

pub use api::{PATH, asks_for_pages, routes, to_pages};
pub use app::{Dashboard, Parts, Policies};
pub use error::Error;
