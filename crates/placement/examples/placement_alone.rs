//! The Placement service on its own, for runs of upstream's conformance tests: it trusts the
//! headers of `noauth2` and must never be exposed to a network.
//!
//! `cargo run -p kilonova-placement --example placement_alone -- 127.0.0.1:8778 sqlite:////tmp/p.db`

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

use std::sync::Arc;

use kilonova_placement::{MIGRATIONS, Placement, World, routes, service};
use kilonova_store::Store;
use kilonova_wire::noauth::NoAuth;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(url)) = (arguments.next(), arguments.next()) else {
        return Err("usage: placement_alone ADDRESS DATABASE_URL".into());
    };
    let store = Store::open(&url.parse()?).await?;
    store.migrate(&[kilonova_changes::MIGRATIONS, MIGRATIONS].concat()).await?;
    let world = World::new();
    world.load(&store).await?;
    let policy = Arc::new(kilonova_placement::policy(&[], Default::default())?);
    let state = Placement { store, world, policy, manager: None };
    let router = kilonova_wire::mount(routes(state), service(), "", Arc::new(NoAuth));
    let listener = tokio::net::TcpListener::bind(address).await?;
    axum::serve(listener, router).await?;
    Ok(())
}
