//! `serve`: from settings to an answering process, and back to nothing.
//!
//! Everything that can be refused (settings, directory, port) is refused before the database is
//! touched.

mod cors;
mod dev;
mod door;
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

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use kilonova_compute::Compute;
use kilonova_store::Store;
use tokio::net::TcpListener;

use crate::config::{AuthStrategy, Front, ServiceName, Settings};
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
    let shown = settings.front.tls.as_ref().map(door::Shown::read).transpose()?;
    let acceptor = shown.as_ref().map(door::Shown::acceptor).transpose()?;
    StateDir::check_private(&settings.state_dir)?;
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
    directory.make_private()?;
    let address =
        listener.local_addr().map_err(|e| Failure::failed("cannot read the own address", e))?;
    if settings.front.is_in_clear(address) {
        tracing::warn!(
            "{address} takes passwords and tokens in clear from the network: set [api] cert and key, or \
             name the proxy that ends TLS in [api] trusted_proxies"
        );
    }
    let url = own_url(&settings.front, shown.as_deref(), address);
    let store = Store::open(&settings.database_url()?)
        .await
        .map_err(|e| Failure::Refused(e.to_string()))?;
    store.migrate(&migrations()).await.map_err(|e| Failure::Failed(e.to_string()))?;
    let credentials = match (settings.auth, settings.runs(ServiceName::Identity)) {
        (AuthStrategy::Keystone, true) => {
            let has_admin = kilonova_identity::has_admin(&store).await;
            let has_admin =
                has_admin.map_err(|e| Failure::failed("cannot look for the admin", e))?;
            let cacert = shown.as_deref().and_then(door::Shown::authority);
            Some(Credentials::load(&directory, &url, cacert, has_admin)?)
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
    let seeds = store.clone();
    let (store, own) = (statements.of_requests(&store), statements.of_loops(&store));
    let services = services::open(&settings, &directory, store, credentials.as_ref()).await?;
    replica::start(&own, &services.world);
    let compute = services.compute.clone();
    let metrics = metrics::Metrics::new(
        own.clone(),
        compute.clone(),
        services.identity.clone(),
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
    let (users, hosts) = listen::pools(&settings.front, node_door.is_some());
    let door = listen::Door::users(&settings.front, acceptor, users, router.clone());
    let mut doors = vec![(listener, door)];
    if let (Some(open), Some(compute)) = (node_door, &compute) {
        println!("kilonova: hosts join at {}", open.enrollment.url());
        let routes = node_tls::routes(compute, &open.enrollment);
        doors.push((open.listener, listen::Door::hosts(open.acceptor, hosts, routes)));
    }
    if let Some(shown) = &shown {
        shown.watch();
    }
    let expected = topology.as_ref().map_or(0, |topology| topology.hosts.len());
    let nodes = match (topology, compute) {
        (Some(topology), Some(compute)) => Some(nodes::start(topology, &directory, compute)),
        _ => None,
    };
    if let (true, Some(credentials)) = (settings.dev, &credentials) {
        dev::seed(router, &seeds, &credentials.password, expected).await?;
    }
    announce(&url, begun, &directory, credentials.as_ref(), settings.dev);
    kilonova_program::systemd::ready(&format!("answering on {address}"));
    listen::serve(doors).await?;
    drop(nodes);
    Ok(())
}

/// What clients call us, as far as we know: what the admin's `clouds.yaml` begins with.
fn own_url(front: &Front, shown: Option<&door::Shown>, address: SocketAddr) -> String {
    match (&front.public_endpoint, shown) {
        (Some(url), _) => url.to_string(),
        (None, Some(shown)) => format!("https://{}:{}", shown.host(address.ip()), address.port()),
        (None, None) => format!("http://{address}"),
    }
}

fn announce(
    url: &str,
    begun: Instant,
    directory: &StateDir,
    credentials: Option<&Credentials>,
    dev: bool,
) {
    let shown = directory.path().display();
    if credentials.is_some_and(|credentials| credentials.fresh) {
        println!(
            "kilonova: first start; the admin's credentials are in {shown}\n  \
             source {shown}/openrc\n  or: export OS_CLIENT_CONFIG_FILE={shown}/clouds.yaml \
             OS_CLOUD=kilonova"
        );
    }
    let took = begun.elapsed().as_secs_f64();
    if dev {
        let commands = dev::commands(&directory.path().join("openrc"));
        println!("kilonova: ready on {url} ({took:.1} s); for a first server, type:\n{commands}");
    } else {
        println!("kilonova: ready on {url} ({took:.1} s)");
    }
}
