//! `kilonova node`: the enrollment commands of `node_join`; and without a subcommand, simulated hosts in
//! this process for a controller in another one. Simulated hosts run the same agent as inside `serve`;
//! tests can kill a separate process separately.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use kilonova_ids::HostName;
use kilonova_node::Node;
use kilonova_node::topology::Topology;
use kilonova_node_api::ControlPlane;
use kilonova_node_link::{Identity, Remote, keep_certified};
use kilonova_pki::Token;
use kilonova_program::signals::StopSignals;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::node_join;
use crate::failure::Failure;
use crate::serve::STARTS;
use crate::state::StateDir;

/// Interval of checks of a host's certificate.
const CERTIFICATE: Duration = Duration::from_secs(60);

/// Arguments of `node`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct NodeArgs {
    #[command(subcommand)]
    command: Option<node_join::Command>,
    #[command(flatten)]
    simulated: Option<Simulated>,
}

/// Simulated hosts in this process.
#[derive(Debug, Args)]
struct Simulated {
    /// URL of the controller, or of several, separated by commas.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8774")]
    control: String,
    /// PEM file with the authorities to trust for a controller with TLS [default: none].
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// File with the node token: `node.token` in the controller's state directory.
    #[arg(long, value_name = "FILE", required_unless_present = "join")]
    token_file: Option<PathBuf>,
    /// Join token (`kilonova node enroll`) with which --host gets its certificate at the first start;
    /// --control must then be the address for enrolled hosts.
    #[arg(long, value_name = "TOKEN", requires = "host", conflicts_with_all = ["token_file", "cacert"])]
    join: Option<String>,
    /// Topology file of the hosts.
    #[arg(long, value_name = "FILE")]
    nodes: PathBuf,
    /// Run only this host of the topology. Default: all.
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Seconds between checks of the guests' power states; 0 disables them.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    sync_power_state_interval: u64,
    /// State directory of the hosts.
    #[arg(long, value_name = "DIR", default_value = "kilonova-node-state")]
    state_dir: PathBuf,
}

pub(super) fn run(options: NodeArgs) -> Result<ExitCode, Failure> {
    match (options.command, options.simulated) {
        (Some(command), _) => node_join::run(command),
        (None, Some(simulated)) => simulate(simulated),
        (None, None) => Err(Failure::Refused(
            "use enroll, list or revoke; or, for simulated hosts, --nodes and --token-file or --join".into(),
        )),
    }
}

fn simulate(options: Simulated) -> Result<ExitCode, Failure> {
    let refused = |error: &dyn std::fmt::Display| Failure::Refused(error.to_string());
    let mut topology = Topology::read(&options.nodes).map_err(|e| refused(&e))?;
    if let Some(name) = &options.host {
        topology.hosts.retain(|host| host.name == name.as_str());
        if topology.hosts.is_empty() {
            let file = options.nodes.display();
            return Err(Failure::Refused(format!("{file} has no host {name}")));
        }
    }
    let by_token = match &options.token_file {
        None => None,
        Some(file) => {
            let token = std::fs::read_to_string(file).map_err(|error| {
                Failure::Refused(format!("cannot read {}: {error}", file.display()))
            })?;
            Some(remote(&options, &token)?)
        }
    };
    let directory = StateDir::take(&options.state_dir)?;
    kilonova_program::logs::start(false, None);
    let topology = topology.with_models();
    let power_sync = Some(options.sync_power_state_interval)
        .filter(|seconds| *seconds > 0)
        .map(Duration::from_secs);
    super::runtime()?.block_on(async {
        let control = match by_token {
            Some(control) => control,
            None => by_certificate(&options, &topology).await?,
        };
        follow(&topology, &directory, Arc::new(control), power_sync).await
    })?;
    Ok(ExitCode::SUCCESS)
}

/// A client with the host's certificate. Enrolls the host with its join token if it has no certificate,
/// and renews the certificate while the process runs.
async fn by_certificate(options: &Simulated, topology: &Topology) -> Result<Remote, Failure> {
    let refused = |error: &dyn std::fmt::Display| Failure::Refused(error.to_string());
    let failed = |error: kilonova_node_link::Error| Failure::Failed(error.to_string());
    let (Some(name), Some(token)) = (&options.host, &options.join) else {
        return Err(Failure::Refused("--join needs --host".into()));
    };
    let identity = Identity::at(&options.state_dir);
    let address: Vec<IpAddr> =
        topology.hosts.iter().filter_map(|host| host.address.parse().ok()).collect();
    let known = match identity.read().map_err(failed)? {
        Some(known) => known,
        None => {
            let token: Token = token.parse().map_err(|e: kilonova_pki::Error| refused(&e))?;
            let host = HostName::verbatim(name.as_str());
            identity.join(&options.control, &token, &host, address.clone()).await.map_err(failed)?
        }
    };
    let remote = known.remote_at(&options.control).map_err(failed)?;
    let kept = remote.clone();
    drop(tokio::spawn(async move {
        match keep_certified(kept, identity, known, address, CERTIFICATE, |_| {}).await {}
    }));
    Ok(remote)
}

/// The client for the controller, with TLS if its URL begins with `https:`.
fn remote(options: &Simulated, token: &str) -> Result<Remote, Failure> {
    let url = &options.control;
    let Some(file) = &options.cacert else {
        if url.trim().starts_with("https:") {
            return Err(Failure::Refused(format!(
                "--control {url} uses TLS: add --cacert FILE with its authority's certificate"
            )));
        }
        return Remote::new(url, token).map_err(|error| Failure::Refused(error.to_string()));
    };
    let shown = file.display();
    let authorities = std::fs::read_to_string(file)
        .map_err(|error| Failure::Refused(format!("cannot read {shown}: {error}")))?;
    Remote::over_tls(url, token, &authorities).map_err(|error| match error {
        kilonova_node_link::Error::Pki(error) => {
            Failure::Refused(format!("--cacert {shown}: {error}"))
        }
        error => Failure::Refused(error.to_string()),
    })
}

/// Runs the hosts until a signal, or until the last one has stopped.
async fn follow(
    topology: &Topology,
    directory: &StateDir,
    control: Arc<dyn ControlPlane>,
    power_sync: Option<Duration>,
) -> Result<(), Failure> {
    let mut signals = StopSignals::handle()?;
    let (stop, stopped) = watch::channel(false);
    let folder = directory.join("nodes");
    let starts = Arc::new(Semaphore::new(STARTS));
    let mut hosts = JoinSet::new();
    for host in &topology.hosts {
        let node = Node::simulated(host, &folder).map_err(|e| Failure::Failed(e.to_string()))?;
        let node = node.syncing_power(power_sync).starting_with(Arc::clone(&starts));
        hosts.spawn(node.run(Arc::clone(&control), stopped.clone()));
    }
    // The hosts run whether or not anybody reads this.
    drop(super::say(&format!("kilonova: {} simulated host(s) started\n", hosts.len())));
    let mut failures = Vec::new();
    loop {
        tokio::select! {
            () = signals.recv() => drop(stop.send_replace(true)),
            ended = hosts.join_next() => match ended {
                None => break,
                Some(Ok(Ok(()))) => {}
                Some(Ok(Err(error))) => failures.push(error.to_string()),
                Some(Err(error)) => failures.push(error.to_string()),
            },
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(Failure::Failed(failures.join("; "))) }
}
