//! What the process is told: defaults, then the file, then the command line.

mod compute;
mod cors;
mod front;
mod identity;
mod image;
mod keystone;
mod known;
mod network;
mod node;
mod nova;
mod policy;
mod problems;
mod scheduler;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kilonova_accelerator::nova::HttpNova;
use kilonova_node::devices::Discovery;
use kilonova_node::topology::MdevOptions;
use kilonova_store::DatabaseUrl;

use crate::failure::Failure;
pub use cors::Cors;
pub use front::{Front, Proxies, TlsFiles};
pub use kilonova_program::config::File;
use kilonova_program::config::{devices, sources};
use kilonova_program::logs::LogFormat;
use known::KNOWN;
pub use node::NodeDoor;
pub use policy::Policies;
pub use problems::{holds_secrets, places, problems};

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
    /// All, in the order of the listing.
    pub const ALL: [Self; 6] = [
        Self::Identity,
        Self::Compute,
        Self::Placement,
        Self::Accelerator,
        Self::Image,
        Self::Network,
    ];

    /// As it is written in `[api] services`, in the catalog and in the path.
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

/// How callers prove who they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthStrategy {
    /// Tokens of the identity service.
    Keystone,
    /// They say so; loopback only.
    NoAuth2,
}

/// Everything, checked.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Keys, images, database.
    pub state_dir: PathBuf,
    /// Where to answer.
    pub listen: SocketAddr,
    /// Where the data is; none for the state directory.
    pub database: Option<String>,
    /// Topology of simulated hosts.
    pub nodes: Option<PathBuf>,
    /// The door for hosts that have joined.
    pub node_door: Option<NodeDoor>,
    /// Whether hosts may speak by the word in `node.token`, on the users' port.
    pub node_token: bool,
    /// What to run.
    pub services: Vec<ServiceName>,
    /// How callers prove who they are.
    pub auth: AuthStrategy,
    /// `[devices]` and `[mdev_*]`, for simulated hosts that say nothing of them themselves.
    pub devices: MdevOptions,
    /// `[pci]`, `[agent]` and `[x710_static]`; simulated hosts have theirs in the topology.
    pub sources: Discovery,
    /// How our own identity service behaves.
    pub identity: kilonova_identity::IdentityOptions,
    /// The Keystone whose tokens are taken, when it is not ours.
    pub keystone: Option<kilonova_keystone::ValidatorOptions>,
    /// Who may do what in each service.
    pub policies: Policies,
    /// Pages of which sites may ask.
    pub cors: Option<Cors>,
    /// How users reach us.
    pub front: Front,
    /// Who is told of accelerator requests that were bound by the API.
    pub nova: Option<Arc<HttpNova>>,
    /// Unbound accelerator requests that a project may have; less than 0 for no limit.
    pub unbound_requests: i64,
    /// How servers are treated.
    pub compute: kilonova_compute::Options,
    /// What networks can be made of.
    pub network: kilonova_network::NetworkOptions,
    /// How images are taken and given.
    pub image: kilonova_image::ImageOptions,
    /// What a first server needs is made at the start.
    pub dev: bool,
    /// More logs.
    pub debug: bool,
    /// How log lines look.
    pub log_format: Option<LogFormat>,
}

/// What the command line says; it counts more than the file.
#[derive(Debug, Default)]
pub struct Told {
    /// Keys, images, database.
    pub state_dir: Option<PathBuf>,
    /// Where to answer.
    pub listen: Option<SocketAddr>,
    /// Where the data is.
    pub database: Option<String>,
    /// Topology of simulated hosts.
    pub nodes: Option<PathBuf>,
    /// Where to answer hosts that have joined.
    pub node_listen: Option<SocketAddr>,
    /// How they call us.
    pub node_names: Vec<String>,
    /// Prepare the cloud for a first server.
    pub dev: bool,
    /// How log lines look.
    pub log_format: Option<LogFormat>,
}

impl Settings {
    /// Reads the file, if one is named, and lays the command line over it.
    ///
    /// # Errors
    /// A sentence that names file, line, group and option.
    pub fn read(config: Option<&Path>, told: Told) -> Result<Self, Failure> {
        let Told { state_dir, listen, database, nodes, node_listen, node_names, dev, log_format } =
            told;
        let file = config.map(|path| File::read(path, KNOWN)).transpose()?.unwrap_or_default();
        let keystone = keystone::read(&file)?;
        let auth = auth(&file)?;
        let listen = match listen {
            Some(listen) => listen,
            None => file
                .parse("api", "listen", "ADDRESS:PORT")?
                .unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 8774))),
        };
        let node_door = node::read(&file, node_listen, node_names)?;
        let settings = Self {
            state_dir: state_dir
                .or(file.path("DEFAULT", "state_path"))
                .unwrap_or_else(|| PathBuf::from("kilonova-state")),
            listen,
            database: database_of(&file, database)?,
            nodes: nodes.or(file.path("simulated", "nodes")),
            node_token: node::token(&file, listen, node_door.as_ref())?,
            node_door,
            services: services(&file, auth, keystone.is_some())?,
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
            network: network::read(&file)?,
            image: image::read(&file)?,
            dev,
            debug: file.parse("DEFAULT", "debug", "true or false")?.unwrap_or(false),
            log_format: match log_format {
                Some(told) => Some(told),
                None => file.parse("DEFAULT", "log_format", LogFormat::EXPECTED)?,
            },
        };
        if settings.dev && !settings.runs_everything() {
            return Err(Failure::Refused(
                "--dev prepares a cloud of its own: it needs all services and [api] auth_strategy = \
                 keystone"
                    .into(),
            ));
        }
        if settings.auth == AuthStrategy::NoAuth2 && !settings.listen.ip().is_loopback() {
            return Err(file.wrong(
                "api",
                "auth_strategy",
                &format!(
                    "noauth2 believes every caller, so it only listens on a loopback address, not on \
                     {}",
                    settings.listen.ip()
                ),
            ));
        }
        Ok(settings)
    }

    /// Where the data is.
    ///
    /// # Errors
    /// A URL that means nothing.
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

    /// Whether a service is to run.
    pub fn runs(&self, service: ServiceName) -> bool {
        self.services.contains(&service)
    }
}

fn database_of(file: &File, told: Option<String>) -> Result<Option<String>, Failure> {
    let (text, from_file) = match told {
        Some(text) => (text, false),
        None => match file.get("database", "connection") {
            Some(text) => (text.to_owned(), true),
            None => return Ok(None),
        },
    };
    match text.parse::<DatabaseUrl>() {
        Ok(_) => Ok(Some(text)),
        Err(e) if from_file => Err(file.wrong("database", "connection", &e.to_string())),
        Err(e) => Err(Failure::Refused(format!("--database: {e}"))),
    }
}

fn services(
    file: &File,
    auth: AuthStrategy,
    keystone_elsewhere: bool,
) -> Result<Vec<ServiceName>, Failure> {
    let no_tokens = auth == AuthStrategy::NoAuth2;
    let Some(text) = file.get("api", "services") else {
        let mut all = ServiceName::ALL.to_vec();
        let absent = no_tokens || keystone_elsewhere;
        all.retain(|service| !(absent && *service == ServiceName::Identity));
        return Ok(all);
    };
    let mut services = Vec::new();
    for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let service = ServiceName::ALL.into_iter().find(|service| service.as_str() == name);
        let service = service.ok_or_else(|| {
            let known = ServiceName::ALL.map(ServiceName::as_str).join(", ");
            file.wrong("api", "services", &format!("{name} is no service; known are {known}"))
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
        let why = "identity makes tokens, and noauth2 reads none; leave it out, or take keystone";
        return Err(file.wrong("api", "services", why));
    }
    if !no_tokens && !identity && !keystone_elsewhere {
        let why = "auth_strategy = keystone needs identity among the services, or another Keystone \
                   in [keystone_authtoken]";
        return Err(file.wrong("api", "services", why));
    }
    if keystone_elsewhere && identity {
        let why = "identity is another Keystone's, by [keystone_authtoken]; name it in one place";
        return Err(file.wrong("api", "services", why));
    }
    Ok(services)
}

/// Cyborg has no such limit, and so no name for it.
fn unbound_requests(file: &File) -> Result<i64, Failure> {
    const OPTION: &str = "max_unbound_requests";
    let said = file.parse("accelerator", OPTION, "a number of requests, or -1 for no limit")?;
    match said.unwrap_or(kilonova_accelerator::UNBOUND_LIMIT) {
        limit if limit < -1 => {
            Err(file.wrong("accelerator", OPTION, "it is a number of requests, or -1 for no limit"))
        }
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
            &format!("{other} is not known; choose keystone or noauth2"),
        )),
    }
}

/// What of a real host's devices a configuration file offers; `None` where it says nothing of them.
///
/// # Errors
/// A sentence that names file, line, group and option.
pub fn devices_of(config: &Path) -> Result<Option<(MdevOptions, Discovery)>, Failure> {
    kilonova_program::config::devices_of(config, KNOWN)
}
