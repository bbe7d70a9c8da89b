//! `serve`: from settings to an answering process, and back to nothing.
//!
//! Everything that can be refused (settings, directory, port) is refused before the database is
//! touched.

mod cors;
mod edge;
mod listen;
mod metrics;
mod node_door;
mod node_tls;
mod nodes;
mod replica;
mod router;
mod services;
mod unreadable;

use std::sync::Arc;
use std::time::Instant;

use kilonova_compute::Compute;
use kilonova_store::Store;
use tokio::net::TcpListener;

use crate::config::{AuthStrategy, ServiceName, Settings};
use crate::failure::Failure;
use crate::state::{Credentials, StateDir};
pub use nodes::STARTS;
pub use services::migrations;

/// Runs the services until a signal.
///
/// # Errors
/// What keeps them from starting.
pub async fn run(settings: Settings) -> Result<(), Failure> {
    let begun = Instant::now();
    let topology = nodes::read(&settings)?;
    StateDir::check_free(&settings.state_dir)?;
    let listener = TcpListener::bind(settings.listen).await.map_err(|e| {
        Failure::Refused(format!(
            "cannot listen on {}: {e}; stop what listens there, or choose another address with --listen",
            settings.listen
        ))
    })?;
    let node_listener = match &settings.node_door {
        Some(door) => Some(node_tls::bind(door).await?),
        None => None,
    };
    let directory = StateDir::take(&settings.state_dir)?;
    let address =
        listener.local_addr().map_err(|e| Failure::failed("cannot read the own address", e))?;
    let store = Store::open(&settings.database_url()?)
        .await
        .map_err(|e| Failure::Refused(e.to_string()))?;
    store.migrate(&migrations()).await.map_err(|e| Failure::Failed(e.to_string()))?;
    let credentials = match (settings.auth, settings.runs(ServiceName::Identity)) {
        (AuthStrategy::Keystone, true) => {
            let has_admin = kilonova_identity::has_admin(&store).await;
            let has_admin =
                has_admin.map_err(|e| Failure::failed("cannot look for the admin", e))?;
            Some(Credentials::load(&directory, address, has_admin)?)
        }
        _ => None,
    };
    let node_door = match (&settings.node_door, node_listener) {
        (Some(door), Some(listener)) => {
            Some(node_tls::open(door, listener, &directory, &store).await?)
        }
        _ => None,
    };
    let statements = metrics::Statements::counting();
    let (store, own) = (statements.of_requests(&store), statements.of_loops(&store));
    let services = services::open(&settings, &directory, store, credentials.as_ref()).await?;
    replica::start(&own, &services.world);
    let compute = services.compute.clone();
    let metrics = metrics::Metrics::new(
        own.clone(),
        compute.clone(),
        Arc::clone(&services.auth),
        directory.secret("metrics.token")?,
        statements,
    );
    if settings.runs(ServiceName::Accelerator) {
        let loops = services.accelerator.clone().with_store(own.clone());
        kilonova_accelerator::reconcile::start(&loops);
    }
    let enrollment = node_door.as_ref().map(|open| open.enrollment.clone());
    let mut router = router::build(&settings, services, metrics, enrollment);
    if let Some(compute) = &compute {
        if settings.node_token {
            if !settings.listen.ip().is_loopback() {
                tracing::warn!(
                    "[node] token = true: whoever has the word in node.token speaks for any host, and \
                     it passes the network in clear; let hosts join with [node] listen instead"
                );
            }
            router = router.merge(node_door::routes(compute, directory.secret("node.token")?));
        }
        kilonova_compute::reconcile::start(&Compute { store: own, ..compute.clone() });
    }
    let hosts = match (node_door, &compute) {
        (Some(open), Some(compute)) => {
            println!("kilonova: hosts join at {}", open.enrollment.url());
            let routes = node_tls::routes(compute, &open.enrollment);
            Some(listen::Hosts::new(open.listener, open.acceptor, routes))
        }
        _ => None,
    };
    let nodes = match (topology, compute) {
        (Some(topology), Some(compute)) => Some(nodes::start(topology, &directory, compute)),
        _ => None,
    };
    announce(address, begun, &directory, credentials.as_ref());
    kilonova_program::systemd::ready(&format!("answering on {address}"));
    listen::serve(listener, router, hosts).await?;
    drop(nodes);
    Ok(())
}

fn announce(
    address: std::net::SocketAddr,
    begun: Instant,
    directory: &StateDir,
    credentials: Option<&Credentials>,
) {
    if credentials.is_some_and(|credentials| credentials.fresh) {
        let shown = directory.path().display();
        println!(
            "kilonova: first start; the admin's credentials are in {shown}\n  \
             source {shown}/openrc\n  or: export OS_CLIENT_CONFIG_FILE={shown}/clouds.yaml \
             OS_CLOUD=kilonova"
        );
    }
    println!("kilonova: ready on http://{address} ({:.1} s)", begun.elapsed().as_secs_f64());
}
