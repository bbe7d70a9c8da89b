//! The settings of the process: defaults, overridden by the file, overridden by the command line.

mod adapter;
mod carried;
mod cinder;
mod compute;
mod console;
mod cors;
mod dashboard;
mod database;
mod front;
mod glance;
mod identity;
mod image;
mod image_store;
mod keystone;
mod known;
mod login;
mod metadata;
mod network;
mod neutron;
mod node;
mod nova;
mod policy;
mod problems;
mod rebalance;
mod scheduler;
mod seal;
mod vendordata;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kilonova_accelerator::nova::HttpNova;
use kilonova_node::devices::Discovery;
use kilonova_node::topology::MdevOptions;
use kilonova_store::DatabaseUrl;

use crate::failure::Failure;
pub use carried::{Carried, Decision, Fate, carried};
pub use cinder::CinderSettings;
pub use cors::Cors;
pub use front::{Front, Proxies, TlsFiles};
pub use glance::GlanceSettings;
pub use kilonova_program::config::{File, Note};
use kilonova_program::config::{devices, sources};
use kilonova_program::logs::LogFormat;
use known::KNOWN;
pub use metadata::MetadataSettings;
pub use neutron::NeutronSettings;
pub use node::NodeListener;
pub use policy::Policies;
pub use problems::{holds_secrets, places, problems};
pub use seal::SealOptions;
pub use vendordata::VendordataSettings;

/// A service that this process can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceName {
    /// Keystone.
    Identity,
    /// Nova.
    Compute,
    /// Placement.
    Placement,
    /// Cyborg.
    Accelerator,
    /// Glance.
    Image,
    /// Neutron.
    Network,
}

impl ServiceName {
    /// All services, in the order of the index page.
    pub const ALL: [Self; 6] = [
        Self::Identity,
        Self::Compute,
        Self::Placement,
        Self::Accelerator,
        Self::Image,
        Self::Network,
    ];

    /// The name in `[api] services`, in the catalog and in paths.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Compute => "compute",
            Self::Placement => "placement",
            Self::Accelerator => "accelerator",
            Self::Image => "image",
            Self::Network => "network",
        }
    }
}

/// How callers authenticate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthStrategy {
    /// Tokens of the identity service.
    Keystone,
    /// Trusted headers; on loopback only.
    NoAuth2,
}

/// The validated settings.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Directory of keys, images and database.
    pub state_dir: PathBuf,
    /// The address of the API.
    pub listen: SocketAddr,
    /// Database URL; `None` for SQLite in the state directory.
    pub database: Option<String>,
    /// Limits of connections to PostgreSQL.
    pub database_options: kilonova_store::Options,
    /// Topology of simulated hosts.
    pub nodes: Option<PathBuf>,
    /// The listener for enrolled hosts.
    pub node_listener: Option<NodeListener>,
    /// True if hosts may authenticate with the token in `node.token`, on the API's port.
    pub node_token: bool,
    /// The services to run.
    pub services: Vec<ServiceName>,
    /// How callers authenticate.
    pub auth: AuthStrategy,
    /// `[devices]` and `[mdev_*]`, for simulated hosts without settings of their own.
    pub devices: MdevOptions,
    /// `[pci]`, `[agent]` and `[x710_static]`; simulated hosts have theirs in the topology.
    pub sources: Discovery,
    /// Options of the built-in identity service.
    pub identity: kilonova_identity::IdentityOptions,
    /// The external Keystone, if tokens come from one.
    pub keystone: Option<kilonova_keystone::ValidatorOptions>,
    /// The policy of each service.
    pub policies: Policies,
    /// The CORS policy.
    pub cors: Option<Cors>,
    /// How users reach the API.
    pub front: Front,
    /// The external Nova to notify when accelerator requests are bound through the API.
    pub nova: Option<Arc<HttpNova>>,
    /// Maximum number of unbound accelerator requests of a project; negative means unlimited.
    pub unbound_requests: i64,
    /// Compute options.
    pub compute: kilonova_compute_app::Options,
    /// The metadata service behind Neutron's proxies, if it is on.
    pub metadata: Option<MetadataSettings>,
    /// The operator's services that provide vendor data to guests, if any.
    pub vendordata: Option<VendordataSettings>,
    /// Listeners for consoles in addition to the API's port.
    pub consoles: Vec<SocketAddr>,
    /// Network options.
    pub network: kilonova_network::NetworkOptions,
    /// Options of our own image service.
    pub image: kilonova_image::ImageOptions,
    /// The Glance of the cloud, if it is the image service.
    pub glance: Option<GlanceSettings>,
    /// The Cinder of the cloud, if servers have volumes.
    pub cinder: Option<CinderSettings>,
    /// The Neutron of the cloud, if it is the network service.
    pub neutron: Option<NeutronSettings>,
    /// The source of the sealing keys, and the number of token keys.
    pub seal: SealOptions,
    /// True if the dashboard is on.
    pub dashboard: bool,
    /// True to create what a first server needs at startup.
    pub dev: bool,
    /// Verbose logs.
    pub debug: bool,
    /// The log format.
    pub log_format: Option<LogFormat>,
    /// Options of the file that have no effect.
    pub notes: Vec<Note>,
}

/// Settings from the command line, which override the file.
#[derive(Debug, Default)]
pub struct CommandLine {
    /// Directory of keys, images and database.
    pub state_dir: Option<PathBuf>,
    /// The address of the API.
    pub listen: Option<SocketAddr>,
    /// Database URL.
    pub database: Option<String>,
    /// Topology of simulated hosts.
    pub nodes: Option<PathBuf>,
    /// The address of the listener for enrolled hosts.
    pub node_listen: Option<SocketAddr>,
    /// The names of that listener.
    pub node_names: Vec<String>,
    /// True to create what a first server needs at startup.
    pub dev: bool,
    /// The log format.
    pub log_format: Option<LogFormat>,
}

impl Settings {
    /// Reads the file, if any, and applies the command line.
    ///
    /// # Errors
    /// A message that names file, line, group and option.
    pub fn read(config: Option<&Path>, arguments: CommandLine) -> Result<Self, Failure> {
        let CommandLine {
            state_dir,
            listen,
            database,
            nodes,
            node_listen,
            node_names,
            dev,
            log_format,
        } = arguments;
        let file = config.map(|path| File::read(path, KNOWN)).transpose()?.unwrap_or_default();
        let keystone = keystone::read(&file)?;
        let auth = auth(&file)?;
        let listen = match listen {
            Some(listen) => listen,
            None => file
                .parse("api", "listen", "ADDRESS:PORT")?
                .unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 8774))),
        };
        let image = image::read(&file)?;
        let glance = glance::read(&file, keystone.as_ref(), image.snapshots.total)?;
        let cinder = cinder::read(&file, keystone.as_ref())?;
        let neutron = neutron::read(&file, keystone.as_ref())?;
        let external = External {
            identity: keystone.is_some(),
            image: glance.is_some(),
            network: neutron.is_some(),
        };
        let node_listener = node::read(&file, node_listen, node_names)?;
        let mut taken = vec![listen];
        taken.extend(node_listener.as_ref().map(|listener| listener.listen));
        let mut settings = Self {
            metadata: metadata::read(&file, &taken)?,
            vendordata: vendordata::read(&file, keystone.as_ref())?,
            state_dir: state_dir
                .or(file.path("DEFAULT", "state_path"))
                .unwrap_or_else(|| PathBuf::from("kilonova-state")),
            listen,
            database: database::url(&file, database)?,
            database_options: database::read(&file)?,
            nodes: nodes.or(file.path("simulated", "nodes")),
            node_token: node::token(&file, listen, node_listener.as_ref())?,
            node_listener,
            services: services(&file, auth, external)?,
            auth,
            identity: identity::read(&file)?,
            keystone,
            policies: policy::read(&file)?,
            cors: cors::read(&file)?,
            front: front::read(&file)?,
            devices: devices::options(&file)?,
            sources: sources::read(&file)?,
            nova: nova::read(&file)?,
            unbound_requests: unbound_requests(&file)?,
            compute: compute::read(&file)?,
            consoles: console::listeners(&file)?,
            network: network::read(&file)?,
            image,
            glance,
            cinder,
            neutron,
            seal: seal::read(&file)?,
            dashboard: false,
            dev,
            debug: file.parse("DEFAULT", "debug", "true or false")?.unwrap_or(false),
            log_format: match log_format {
                Some(format) => Some(format),
                None => file.parse("DEFAULT", "log_format", LogFormat::EXPECTED)?,
            },
            notes: file.notes().to_vec(),
        };
        settings.dashboard = dashboard::read(&file, &settings)?;
        if settings.dev && !settings.runs_everything() {
            return Err(Failure::Refused(
                "--dev requires all services and [api] auth_strategy = \
                 keystone"
                    .into(),
            ));
        }
        if settings.metadata.is_some() && !settings.runs(ServiceName::Compute) {
            let why = "the metadata service needs compute in [api] services";
            return Err(file.wrong("neutron", "service_metadata_proxy", why));
        }
        if settings.auth == AuthStrategy::NoAuth2 && !settings.listen.ip().is_loopback() {
            return Err(file.wrong(
                "api",
                "auth_strategy",
                &format!(
                    "noauth2 trusts every caller, so it only listens on a loopback address, not on \
                     {}",
                    settings.listen.ip()
                ),
            ));
        }
        Ok(settings)
    }

    /// The database URL.
    ///
    /// # Errors
    /// An invalid URL.
    pub fn database_url(&self) -> Result<DatabaseUrl, Failure> {
        match &self.database {
            None => Ok(DatabaseUrl::Sqlite(self.state_dir.join("kilonova.db"))),
            Some(url) => {
                url.parse().map_err(|e| Failure::Refused(format!("[database] connection: {e}")))
            }
        }
    }

    fn runs_everything(&self) -> bool {
        self.auth == AuthStrategy::Keystone && ServiceName::ALL.iter().all(|one| self.runs(*one))
    }

    /// True if `serve` starts the service.
    pub fn runs(&self, service: ServiceName) -> bool {
        self.services.contains(&service)
    }
}

/// Which services of the cloud are external.
#[derive(Debug, Clone, Copy)]
struct External {
    identity: bool,
    image: bool,
    network: bool,
}

fn services(
    file: &File,
    auth: AuthStrategy,
    external: External,
) -> Result<Vec<ServiceName>, Failure> {
    let no_tokens = auth == AuthStrategy::NoAuth2;
    let Some(text) = file.get("api", "services") else {
        let mut all = ServiceName::ALL.to_vec();
        let absent = no_tokens || external.identity;
        all.retain(|service| !(absent && *service == ServiceName::Identity));
        all.retain(|service| !(external.image && *service == ServiceName::Image));
        all.retain(|service| !(external.network && *service == ServiceName::Network));
        return Ok(all);
    };
    let mut services = Vec::new();
    for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let service = ServiceName::ALL.into_iter().find(|service| service.as_str() == name);
        let service = service.ok_or_else(|| {
            let known = ServiceName::ALL.map(ServiceName::as_str).join(", ");
            file.wrong("api", "services", &format!("{name} is not a service; expected {known}"))
        })?;
        if !services.contains(&service) {
            services.push(service);
        }
    }
    if services.is_empty() {
        return Err(file.wrong("api", "services", "it names no service"));
    }
    let identity = services.contains(&ServiceName::Identity);
    if no_tokens && identity {
        let why = "noauth2 has no tokens, so identity cannot run; remove it, or use keystone";
        return Err(file.wrong("api", "services", why));
    }
    if external.network && services.contains(&ServiceName::Network) {
        let why = "[neutron] names the Neutron of the cloud, so network cannot run; remove one";
        return Err(file.wrong("api", "services", why));
    }
    if external.image && services.contains(&ServiceName::Image) {
        let why = "[glance] names the Glance of the cloud, so image cannot run; remove one";
        return Err(file.wrong("api", "services", why));
    }
    if !no_tokens && !identity && !external.identity {
        let why = "auth_strategy = keystone needs identity among the services, or another Keystone \
                   in [keystone_authtoken]";
        return Err(file.wrong("api", "services", why));
    }
    if external.identity && identity {
        let why =
            "[keystone_authtoken] names an external Keystone, so identity cannot run; remove one";
        return Err(file.wrong("api", "services", why));
    }
    Ok(services)
}

/// The limit of unbound requests per project, for which Cyborg has no option.
fn unbound_requests(file: &File) -> Result<i64, Failure> {
    const OPTION: &str = "max_unbound_requests";
    let limit = file.parse("accelerator", OPTION, "a number of requests, or -1 for unlimited")?;
    match limit.unwrap_or(kilonova_accelerator::UNBOUND_LIMIT) {
        limit if limit < -1 => Err(file.wrong(
            "accelerator",
            OPTION,
            "expected a number of requests, or -1 for unlimited",
        )),
        limit => Ok(limit),
    }
}

fn auth(file: &File) -> Result<AuthStrategy, Failure> {
    match file.get("api", "auth_strategy") {
        None | Some("keystone") => Ok(AuthStrategy::Keystone),
        Some("noauth2") => Ok(AuthStrategy::NoAuth2),
        Some(other) => Err(file.wrong(
            "api",
            "auth_strategy",
            &format!("{other} is not supported; expected keystone or noauth2"),
        )),
    }
}

/// The device options of a real host in a configuration file; `None` if it has none.
///
/// # Errors
/// A message that names file, line, group and option.
pub fn devices_of(config: &Path) -> Result<Option<(MdevOptions, Discovery)>, Failure> {
    kilonova_program::config::devices_of(config, KNOWN)
}
