//! `run`: the service. It builds an agent from the real parts of this host and runs it.
//!
//! If something is missing (libvirt, the controller, a certificate, a configured device), it
//! logs that, notifies systemd, and retries, while guests keep running. Only a signal or another
//! agent for this host ends it.

use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use kilonova_disks::Disks;
use kilonova_hypervisor::Hypervisor;
use kilonova_ids::HostName;
use kilonova_libvirt::Driver;
use kilonova_node::devices::{
    Directory, Discovery, Links, MdevConfig, Models, NvidiaSmi, mig_driver,
};
use kilonova_node::{Commands, Error, Network, Node, Parts};
use kilonova_node_api::ControlPlane;
use kilonova_program::signals::StopSignals;
use kilonova_program::state::StateDir;
use kilonova_program::{Failure, systemd};
use kilonova_volumes::{HostVolumes, VolumesConfig};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::connection::{self, Connection};
use crate::control::Shared;
use crate::settings::Settings;
use crate::{facts, monitor};

/// Delay before a retry.
const PAUSE: Duration = Duration::from_secs(10);
/// Interval of checks for configured devices that were missing.
const DEVICE_CHECK: Duration = Duration::from_secs(30);
/// Exit code: another agent registered for this host; systemd must not restart this one.
const FENCED: u8 = 3;

/// Why a run ended.
enum End {
    Stopped,
    Fenced,
    /// Something is missing; the text names it.
    Retry(String),
}

/// Runs until a signal.
///
/// # Errors
/// If it cannot start.
pub async fn run(settings: Settings) -> Result<ExitCode, Failure> {
    let guests = folder(&settings.state_dir, 0o711);
    let directory = guests.and_then(|()| StateDir::take(&settings.state_dir))?;
    folder(&directory.join("node"), 0o700)?;
    let stop = stop()?;
    systemd::ready("starting");
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "starting the agent");
    let mut last_error = String::new();
    let code = loop {
        let end = once(&settings, &directory, stop.clone()).await;
        let why = match end {
            End::Stopped => break ExitCode::SUCCESS,
            End::Fenced => break ExitCode::from(FENCED),
            End::Retry(why) => why,
        };
        systemd::status(&why);
        if why == last_error {
            tracing::debug!("{why}");
        } else {
            tracing::error!("{why}");
            last_error = why;
        }
        let mut command_line = stop.clone();
        if tokio::time::timeout(PAUSE, command_line.wait_for(|stop| *stop)).await.is_ok() {
            break ExitCode::SUCCESS;
        }
    };
    systemd::stopping();
    Ok(code)
}

/// Creates a directory. QEMU must be able to traverse the state directory to reach the guests' disks;
/// `node` in it contains guest metadata and is private.
fn folder(path: &Path, mode: u32) -> Result<(), Failure> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(mode).create(path);
    made.map_err(|error| {
        Failure::Refused(format!(
            "cannot use the state directory {}: {error}; choose another with --state-dir, or make it \
             writable for root",
            path.display()
        ))
    })
}

/// Becomes true on SIGTERM or Ctrl-C.
fn stop() -> Result<watch::Receiver<bool>, Failure> {
    let mut signals = StopSignals::handle()?;
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(async move {
        signals.recv().await;
        stop.send_replace(true);
        // Receivers may subscribe later.
        std::future::pending::<()>().await;
    });
    Ok(stopped)
}

async fn once(settings: &Settings, directory: &StateDir, mut stop: watch::Receiver<bool>) -> End {
    let begun = tokio::select! {
        biased;
        _ = stop.wait_for(|stop| *stop) => return End::Stopped,
        begun = begin(settings, directory) => begun,
    };
    let Started { connection, node, control, driver, missing, _tasks } = match begun {
        Ok(begun) => begun,
        Err(why) => return End::Retry(why),
    };
    let host = connection.host.clone();
    let (halt, halted) = watch::channel(false);
    let mut running = Box::pin(node.run(control, halted));
    let monitor = monitor::run(&connection, &driver, missing.as_deref());
    let is_incomplete = missing.is_some();
    let ended = tokio::select! {
        ended = &mut running => ended,
        _ = stop.wait_for(|stop| *stop) => {
            halt.send_replace(true);
            return match running.await {
                Err(Error::Fenced { .. }) => End::Fenced,
                _ => End::Stopped,
            };
        }
        () = devices_appear(settings), if is_incomplete => {
            halt.send_replace(true);
            drop(running.await);
            return End::Retry("a missing configured device has appeared".into());
        }
        never = monitor => match never {},
    };
    match ended {
        Ok(()) => End::Stopped,
        Err(Error::Fenced { .. }) => {
            tracing::error!(
                %host,
                "another agent has registered for this host, so this one stops; if you did not \
                 start it, two machines share one identity: stop one of them, and join it again \
                 under its own name"
            );
            End::Fenced
        }
        Err(error) => End::Retry(error.to_string()),
    }
}

struct Started {
    connection: Connection,
    node: Node,
    control: Arc<dyn ControlPlane>,
    driver: Arc<Driver>,
    /// The configured devices that are missing.
    missing: Option<String>,
    /// Tasks that are aborted when this value is dropped.
    _tasks: JoinSet<()>,
}

/// Prepares everything that the agent needs. The error names what is missing.
async fn begin(settings: &Settings, directory: &StateDir) -> Result<Started, String> {
    let connection = connection::open(settings)?;
    let control = Arc::new(Shared::new(connection.remote.clone(), connection.host.clone()));
    let disks = Disks::open(settings.files.clone(), Arc::clone(&control) as _);
    let disks = disks.map_err(|error| error.to_string())?;
    let sysfs = Arc::new(Directory(settings.sysfs.clone()));
    let driver =
        Driver::open(settings.libvirt.clone(), disks.clone(), Arc::clone(&sysfs) as _).await;
    let driver = Arc::new(driver.map_err(|error| error.message)?);
    let (mdev, missing) = match MdevConfig::new(&settings.mdev, &*sysfs) {
        Ok(mdev) => (mdev, None),
        Err(error) => {
            let why = format!("{error}; no mediated devices are offered until this is fixed");
            tracing::error!("{why}");
            (MdevConfig::default(), Some(why))
        }
    };
    let links =
        links(settings.sources.links.clone(), NvidiaSmi::default(), &connection.host).await?;
    let models = models(Arc::clone(&sysfs)).await;
    let registration = facts::registration(settings, &connection.host, connection.address);
    let volumes = volumes(settings, &connection, directory).await?;
    let cleanup = settings.sources.cleanup.clone();
    let node = Node::new(Parts {
        registration: registration.map_err(|error| error.to_string())?,
        discovery: Arc::new(Discovery { mdev, links, models, ..settings.sources.clone() }),
        sysfs: Arc::clone(&sysfs) as _,
        mig: mig_driver(&settings.mdev),
        hypervisor: Arc::clone(&driver) as Arc<dyn Hypervisor>,
        tools: Arc::new(Commands::new(connection.host.clone(), sysfs, cleanup)),
        network: network(settings),
        volumes: Arc::new(volumes),
        state: directory.join("node"),
        settings: kilonova_node::Settings {
            concurrency: settings.concurrency,
            power_sync: settings.power_sync,
            cells: Some(settings.cells.clone()),
            metadata: Arc::new(kilonova_node::MetadataSettings {
                dhcp_domain: settings.files.dhcp_domain.clone(),
                vendordata: settings.files.vendordata.clone(),
            }),
            ..kilonova_node::Settings::default()
        },
    });
    let node = node.map_err(|error| error.to_string())?;
    let mut tasks = JoinSet::new();
    tasks.spawn(disks.clean_periodically());
    Ok(Started { connection, node, control, driver, missing, _tasks: tasks })
}

/// The models of this host's devices. A host works without them.
async fn models(sysfs: Arc<Directory>) -> Models {
    let read = tokio::task::spawn_blocking(move || Models::read(&*sysfs)).await;
    let read = read.map_err(|error| error.to_string());
    read.and_then(|models| models.map_err(|error| error.to_string())).unwrap_or_else(|why| {
        tracing::info!("the model names of this host's devices are not shown: {why}");
        Models::default()
    })
}

/// The NVLink connections of the GPUs, read once because they change only with the hardware.
async fn links(links: Links, program: NvidiaSmi, host: &HostName) -> Result<Links, String> {
    let resolved = tokio::task::spawn_blocking(move || links.resolved(&program)).await;
    let resolved = resolved.map_err(|error| format!("{host}: {error}"))?;
    resolved.map_err(|error| {
        format!(
            "{host}: {error}; run `nvidia-smi topo -m`, or list the islands in [devices] nvlink_islands"
        )
    })
}

async fn volumes(
    settings: &Settings,
    connection: &Connection,
    directory: &StateDir,
) -> Result<HostVolumes, String> {
    let address = settings.storage_ip.unwrap_or(connection.address);
    let config = VolumesConfig {
        host: connection.host.to_string(),
        address: address.to_string(),
        ..settings.volumes.clone()
    };
    HostVolumes::open(config, directory.join("node").join("volumes")).await
}

fn network(settings: &Settings) -> Arc<dyn Network> {
    Arc::new(kilonova_host_network::HostNetwork::new(settings.network.clone()))
}

/// Returns when the configured devices exist.
async fn devices_appear(settings: &Settings) {
    loop {
        tokio::time::sleep(DEVICE_CHECK).await;
        let sysfs = Directory(settings.sysfs.clone());
        if MdevConfig::new(&settings.mdev, &sysfs).is_ok() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::CommandLine;

    fn settings(state: &Path) -> Settings {
        let command_line =
            CommandLine { state_dir: Some(state.to_owned()), ..CommandLine::default() };
        Settings::read(None, command_line).expect("nothing is wrong")
    }

    #[tokio::test]
    async fn an_unwritable_state_directory_is_refused() {
        let message = run(settings(Path::new("/proc/nothing")))
            .await
            .expect_err("the state directory is refused");
        let message = message.to_string();
        assert!(message.contains("/proc/nothing") && message.contains("--state-dir"), "{message}");
        let there = tempfile::tempdir().expect("a temporary directory is created");
        let _owned = StateDir::take(there.path()).expect("the state directory is free");
        let message = run(settings(there.path()))
            .await
            .expect_err("the state directory is owned")
            .to_string();
        assert!(message.contains("owned by a running instance"), "{message}");
    }

    #[tokio::test]
    async fn a_driver_that_does_not_describe_links_is_asked_again() {
        let host = HostName::verbatim("gpu-7");
        let listed = Links::parse(&["0000:18:00.0,0000:19:00.0".into()]).expect("an island");
        let absent = || NvidiaSmi::with_program("/nowhere/nvidia-smi".into());
        assert_eq!(links(listed.clone(), absent(), &host).await, Ok(listed));
        let driver = Links::parse(&["driver".into()]).expect("the option is valid");
        let why = links(driver, absent(), &host).await.expect_err("there is no such program");
        assert!(why.starts_with("gpu-7: cannot read the NVLink connections"), "{why}");
        assert!(why.contains("[devices] nvlink_islands"), "{why}");
    }

    #[tokio::test]
    async fn a_host_that_has_not_joined_waits_with_instructions() {
        let there = tempfile::tempdir().expect("a temporary directory is created");
        let directory = StateDir::take(there.path()).expect("the state directory is free");
        let (stop, stopped) = watch::channel(false);
        let end = once(&settings(there.path()), &directory, stopped.clone()).await;
        let End::Retry(why) = end else { panic!("it waits") };
        assert!(why.contains("kilonova node enroll"), "{why}");
        std::fs::write(there.path().join("identity.json"), "{").expect("the file is written");
        let end = once(&settings(there.path()), &directory, stopped.clone()).await;
        let End::Retry(why) = end else { panic!("it waits") };
        assert!(why.contains("remove it and join again"), "{why}");
        stop.send_replace(true);
        assert!(matches!(once(&settings(there.path()), &directory, stopped).await, End::Stopped));
    }
}
