//! `serve`: starts everything from the settings and stops it in order.
//!
//! Everything that can be refused (settings, state directory, port) is refused before the database is
//! touched.

mod connection;
mod consoles;
mod cors;
mod dashboard;
mod dev;
mod edge;
#[cfg(test)]
mod expansion;
mod health;
pub mod leader;
mod listen;
mod metrics;
mod node_listener;
mod node_tls;
mod nodes;
mod replica;
mod router;
pub mod secrets;
mod services;
mod unreadable;
mod unsent;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use kilonova_changes::Follower;
use kilonova_compute_app::Compute;
use kilonova_compute_app::metadata_service::MetadataService;
use kilonova_compute_nodes::Drain;
use kilonova_node_api::ControllerUrls;
use kilonova_placement::Providers;
use kilonova_program::signals::StopSignals;
use kilonova_store::{DatabaseUrl, Error, Severity, Store};
use tokio::net::TcpListener;

use crate::config::{AuthStrategy, Front, MetadataSettings, ServiceName, Settings};
use crate::failure::Failure;
use crate::state::{
    Credentials, StateDir, check_cloud, check_database, check_known_cloud, remember_cloud,
};
pub use connection::{CertificateProblem, examine_certificate};
pub use nodes::STARTS;
pub use services::migrations;

/// Runs the services until a signal.
///
/// # Errors
/// The reason why they cannot start.
pub async fn run(settings: Settings) -> Result<(), Failure> {
    let begun = Instant::now();
    let topology = nodes::read(&settings)?;
    let shown = settings.front.tls.as_ref().map(connection::ServerCertificate::read).transpose()?;
    let acceptor = shown.as_ref().map(connection::ServerCertificate::acceptor).transpose()?;
    StateDir::check_private(&settings.state_dir)?;
    StateDir::check_free(&settings.state_dir)?;
    let database = settings.database_url()?;
    if let DatabaseUrl::Sqlite(file) = &database {
        // Opening a missing file creates it.
        let is_empty = std::fs::metadata(file).map_or(true, |found| found.len() == 0);
        check_database(&settings.state_dir, is_empty)?;
    }
    let listener = bind(settings.listen, "", "use another --listen address").await?;
    let node_socket = match &settings.node_listener {
        Some(listener) => Some(node_tls::bind(listener).await?),
        None => None,
    };
    let metadata_socket = match &settings.metadata {
        Some(metadata) => Some(bind_metadata(metadata).await?),
        None => None,
    };
    let console_sockets = consoles::bind(&settings.consoles).await?;
    let directory = StateDir::take(&settings.state_dir)?;
    directory.make_private()?;
    let address = listener
        .local_addr()
        .map_err(|e| Failure::failed("cannot read the listening address", e))?;
    if settings.front.is_in_clear(address) {
        tracing::warn!(
            "{address} accepts passwords and tokens unencrypted from the network: set [api] cert and key, or \
                         name the TLS-terminating proxy in [api] trusted_proxies"
        );
    }
    let url = own_url(&settings.front, shown.as_deref(), address);
    let opened = Store::open_with(&database, &settings.database_options).await;
    // The service manager restarts a process that failed, but not one that was refused.
    let store = opened.map_err(|error| match error.severity() {
        _ if is_damaged(&error) => unusable(&database, error),
        Severity::Temporary => Failure::Failed(error.to_string()),
        Severity::DiskFull | Severity::Permanent => Failure::Refused(error.to_string()),
    })?;
    let is_new = store.is_new().await.map_err(|error| unusable(&database, error))?;
    check_database(&settings.state_dir, is_new)?;
    check_known_cloud(&settings.state_dir, &store).await?;
    store.migrate(&migrations()).await.map_err(|error| unusable(&database, error))?;
    let cloud = kilonova_image::cloud_id(&store).await.map_err(|error| match error {
        kilonova_image::Error::Store(error) => unusable(&database, error),
        error => Failure::failed("cannot read the id of the cloud", error),
    })?;
    check_cloud(&settings.state_dir, &cloud)?;
    let vault = secrets::open(&settings, store.clone()).await?;
    // Opened before anything is loaded, so that no commit of another controller is missed in between.
    let mut follower = Follower::open(&store).await.map_err(|error| unusable(&database, error))?;
    let credentials = match (settings.auth, settings.runs(ServiceName::Identity)) {
        (AuthStrategy::Keystone, true) => {
            let has_admin = kilonova_identity::has_admin(&store).await;
            let has_admin = has_admin.map_err(|error| match error {
                kilonova_identity::Error::Store(error) => unusable(&database, error),
                error => Failure::failed("cannot look for the admin", error),
            })?;
            let cacert = shown.as_deref().and_then(connection::ServerCertificate::authority);
            Some(Credentials::load(&directory, &url, cacert, has_admin)?)
        }
        _ => None,
    };
    let node_endpoint = match (&settings.node_listener, node_socket) {
        (Some(options), Some(socket)) => {
            Some(node_tls::open(options, socket, &directory, &vault).await?)
        }
        _ => None,
    };
    let statements = metrics::Statements::counting();
    let seeds = store.clone();
    let (store, own) = (statements.of_requests(&store), statements.of_loops(&store));
    let mut services =
        services::open(&settings, &directory, &vault, store, credentials.as_ref()).await?;
    remember_cloud(&directory, &cloud)?;
    follower.subscribe(Arc::new(Providers::new(&services.world, &own)));
    if let Some(identity) = &services.identity {
        follower.subscribe(Arc::new(identity.clone()));
    }
    if let Some(open) = &node_endpoint {
        follower.subscribe(Arc::new(open.enrollment.clone()));
    }
    if let Some(compute) = &services.compute {
        follower.subscribe(Arc::new(Compute { store: own.clone(), ..compute.clone() }));
    }
    let (phase, drain) = Drain::serving();
    let (lease, leading) = leader::start(&own, drain.clone()).await;
    let progress = replica::start(&own, follower, &lease);
    services.compute = services.compute.map(|compute| compute.following(progress.clone()));
    let health = health::Health::new(own.clone(), drain.clone(), progress);
    if let Some(images) = &services.images {
        images.start_sweeps(own.clone());
    }
    let compute = services.compute.clone();
    let metrics = metrics::Metrics::new(
        own.clone(),
        compute.clone(),
        services.identity.clone(),
        Arc::clone(&services.auth),
        secrets::token(&vault, &directory, "metrics.token").await?,
        statements,
    );
    if settings.runs(ServiceName::Accelerator) {
        let loops = services.accelerator.clone().with_store(own.clone());
        let (fence, held) = (lease.clone(), lease.clone());
        let fenced = own.guarded(move |tx| fence.fence(tx));
        kilonova_accelerator::reconcile::start(&loops, &fenced, move || held.is_held());
    }
    let enrollment = node_endpoint.as_ref().map(|open| open.enrollment.clone());
    let (auth, traffic) = (Arc::clone(&services.auth), metrics.traffic());
    let mut router = router::build(&settings, services, metrics, &health, enrollment);
    if let Some(compute) = &compute {
        if settings.node_token {
            if !settings.listen.ip().is_loopback() {
                tracing::warn!(
                    "[node] token = true: anyone with the token in node.token can act for any host, and it \
                                         crosses the network unencrypted; let hosts enroll with [node] listen instead"
                );
            }
            let token = secrets::token(&vault, &directory, "node.token").await?;
            router = router.merge(node_listener::routes(compute, token, &drain));
        }
        let loops = Compute { store: own.clone(), ..compute.clone() };
        kilonova_compute_app::reconcile::start(&loops, &lease);
    }
    if let (true, Some(compute)) = (settings.dashboard, &compute) {
        // The loop for open pages does not run on behalf of a request.
        let compute = Compute { store: own.clone(), ..compute.clone() };
        let enforcer = |service| settings.policies.enforcer(service);
        let policies = kilonova_dashboard::Policies {
            accelerator: enforcer(ServiceName::Accelerator),
            image: enforcer(ServiceName::Image),
            network: enforcer(ServiceName::Network),
        };
        let drain = drain.clone();
        router = dashboard::add(router, auth, compute, policies, &vault, traffic, drain).await?;
    }
    if let Some(compute) = &compute {
        let urls = ControllerUrls {
            hosts: node_endpoint.as_ref().map(|open| open.own_url.clone()),
            api: settings.node_token.then(|| consoles::api_url(&settings.front, address)),
        };
        consoles::follow(&compute.consoles, urls, drain.clone());
    }
    let (users, hosts) = listen::pools(&settings.front, node_endpoint.is_some());
    let console_endpoint =
        compute.clone().filter(|_| settings.runs(ServiceName::Compute)).map(|compute| {
            let routes = router::consoles_at_root(compute);
            listen::Endpoint::users(&settings.front, acceptor.clone(), users.clone(), routes)
        });
    let endpoint = listen::Endpoint::users(&settings.front, acceptor, users, router.clone());
    let mut listeners = vec![(listener, endpoint)];
    for socket in console_sockets {
        if let Some(endpoint) = &console_endpoint {
            listeners.push((socket, endpoint.clone()));
        }
    }
    if let (Some(open), Some(compute)) = (node_endpoint, &compute) {
        tell(&format!("kilonova: hosts join at {}", open.enrollment.url()));
        let routes = node_tls::routes(compute, &open.enrollment, &drain).merge(health.routes());
        listeners.push((open.listener, listen::Endpoint::hosts(open.acceptor, hosts, routes)));
    }
    if let (Some(socket), Some(metadata), Some(compute)) =
        (metadata_socket, &settings.metadata, &compute)
    {
        let service = MetadataService::new(compute.clone(), metadata.options.clone());
        let routes = kilonova_compute::api::metadata_service::routes(service, &metadata.secret);
        let pool = listen::proxies();
        let address = socket.local_addr().unwrap_or(metadata.listen);
        listeners.push((socket, listen::Endpoint::users(&settings.front, None, pool, routes)));
        tell(&format!("kilonova: the metadata service for Neutron's proxies listens on {address}"));
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
    let signals = StopSignals::handle()?;
    announce(&url, begun, &directory, credentials.as_ref(), &settings);
    kilonova_program::systemd::ready(&format!("answering on {address}"));
    listen::serve(listeners, (phase, drain), settings.front.shutdown_delay, signals).await;
    drop(nodes);
    leading.ended().await;
    Ok(())
}

fn is_damaged(error: &Error) -> bool {
    matches!(error, Error::Damaged(_))
}

/// The failure of the first statements on an open database.
fn unusable(database: &DatabaseUrl, error: Error) -> Failure {
    match (error, database) {
        (Error::Copy(why), _) => Failure::Refused(why),
        (error, DatabaseUrl::Sqlite(file)) if is_damaged(&error) => Failure::Refused(format!(
            "{}: {error}; keep a copy, restore the last good backup (kilonova.db, without -wal and -shm), and \
             check the disk",
            file.display()
        )),
        (error, _) => Failure::Failed(error.to_string()),
    }
}

/// Binds a socket before anything is written. `use_of` follows the address in an error, and `instead`
/// says how to name another one.
async fn bind(address: SocketAddr, use_of: &str, instead: &str) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| {
        let remedy = match error.kind() {
            ErrorKind::AddrInUse => "stop the program that listens there, or ",
            ErrorKind::AddrNotAvailable => "this machine does not have this address: ",
            ErrorKind::PermissionDenied if address.port() < 1024 => {
                "this user may not use a port below 1024: grant CAP_NET_BIND_SERVICE, or "
            }
            _ => "",
        };
        Failure::Refused(format!("cannot listen on {address}{use_of}: {error}; {remedy}{instead}"))
    })
}

/// The socket for Neutron's proxies.
async fn bind_metadata(metadata: &MetadataSettings) -> Result<TcpListener, Failure> {
    let instead = "set [DEFAULT] metadata_listen and metadata_listen_port";
    bind(metadata.listen, " for the metadata service", instead).await
}

/// The URL and the authority that the admin's files name, as far as the settings determine them: with
/// port 0, the next start corrects the files.
///
/// # Errors
/// An unusable certificate.
pub fn entrance(settings: &Settings) -> Result<(String, Option<PathBuf>), Failure> {
    let shown = settings.front.tls.as_ref().map(connection::ServerCertificate::read).transpose()?;
    let cacert = shown.as_deref().and_then(connection::ServerCertificate::authority);
    let url = own_url(&settings.front, shown.as_deref(), settings.listen);
    Ok((url, cacert.map(Path::to_owned)))
}

/// The URL of the API for the admin's `clouds.yaml`, as far as the process knows it.
fn own_url(
    front: &Front,
    shown: Option<&connection::ServerCertificate>,
    address: SocketAddr,
) -> String {
    match (&front.public_endpoint, shown) {
        (Some(url), _) => url.to_string(),
        (None, Some(shown)) => format!("https://{}:{}", shown.host(address.ip()), address.port()),
        (None, None) => format!("http://{address}"),
    }
}

/// Prints a line for the person who starts the services. They run whether or not it can be written.
fn tell(line: &str) {
    drop(kilonova_program::say(&format!("{line}\n")));
}

fn announce(
    url: &str,
    begun: Instant,
    directory: &StateDir,
    credentials: Option<&Credentials>,
    settings: &Settings,
) {
    let shown = directory.path().display();
    if credentials.is_some_and(|credentials| credentials.fresh) {
        tell(&format!(
            "kilonova: first start; the admin's credentials are in {shown}\n  \
             source {shown}/openrc\n  or: export OS_CLIENT_CONFIG_FILE={shown}/clouds.yaml \
             OS_CLOUD=kilonova"
        ));
    }
    if settings.dashboard {
        // A controller that did not create the administrator does not know the password.
        let admin = match directory.join("openrc").exists() {
            true => format!(
                "; the administrator is admin, with the password (OS_PASSWORD) in {shown}/openrc"
            ),
            false => String::new(),
        };
        let path = kilonova_dashboard::PATH;
        tell(&format!("kilonova: the dashboard is at {url}{path} for a browser{admin}"));
    }
    let took = begun.elapsed().as_secs_f64();
    if settings.dev {
        let commands = dev::commands(&directory.path().join("openrc"));
        tell(&format!(
            "kilonova: ready on {url} ({took:.1} s); for a first server, type:\n{commands}"
        ));
    } else {
        tell(&format!("kilonova: ready on {url} ({took:.1} s)"));
    }
}
