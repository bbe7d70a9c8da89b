//! `serve`: from settings to an answering process, and back to nothing.
//!
//! Everything that can be refused (settings, directory, port) is refused before the database is
//! touched.

mod cors;
mod edge;
mod listen;
pub mod logs;
mod metrics;
mod node_door;
mod nodes;
mod replica;
mod router;
mod services;
mod unreadable;

use std::sync::Arc;
use std::time::Instant;

use kilonova_store::Store;
use tokio::net::TcpListener;

use crate::config::{AuthStrategy, ServiceName, Settings};
use crate::failure::Failure;
use crate::state::{Credentials, StateDir};
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
    let services = services::open(&settings, &directory, store, credentials.as_ref()).await?;
    replica::start(&services.store, &services.world);
    let compute = services.compute.clone();
    let metrics = metrics::Metrics::new(
        services.store.clone(),
        compute.clone(),
        Arc::clone(&services.auth),
        directory.secret("metrics.token")?,
    );
    if settings.runs(ServiceName::Accelerator) {
        kilonova_accelerator::reconcile::start(&services.accelerator);
    }
    let mut router = router::build(&settings, services, metrics);
    if let Some(compute) = &compute {
        router = router.merge(node_door::routes(compute, directory.secret("node.token")?));
        kilonova_compute::reconcile::start(compute);
    }
    let nodes = match (topology, compute) {
        (Some(topology), Some(compute)) => Some(nodes::start(topology, &directory, compute)?),
        _ => None,
    };
    announce(address, begun, &directory, credentials.as_ref());
    listen::serve(listener, router).await?;
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
