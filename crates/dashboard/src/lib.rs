//! The dashboard: the cloud in a browser, as HTML that the server writes.
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
//! A page asks the services' own HTTP APIs with the token of the user who looks at it, so policy, quotas and
//! validation are those of every client. Only the floor is too large for that: it asks the API whether the user may see the floor,
//! and then reads the hosts from the compute service's application layer. A session is in its cookie alone: any controller serves the next
//! request, and nothing here outlives a process. The crate must never open the database, and never decide
//! what a user may see or do; it only leaves out what the service would refuse.

mod api;
mod app;
mod assets;
mod error;
mod texts;
mod views;

pub use api::{PATH, asks_for_pages, routes, to_pages};
pub use app::{Dashboard, Parts, Policies};
pub use error::Error;
