//! The agent's settings: defaults, overridden by the file, overridden by the command line. Groups
//! and options are nova.conf's, except for `[node]`, which upstream does not have.

mod cells;
mod files;
mod known;
mod libvirt;
mod volumes;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kilonova_ids::HostName;
use kilonova_node::devices::{CellOptions, Discovery, MdevOptions};
use kilonova_program::Failure;
use kilonova_program::config::{File, Note, devices, sources};
use kilonova_program::logs::LogFormat;

use known::KNOWN;

/// All settings, validated.
#[derive(Debug)]
pub struct Settings {
    /// The state directory: identity and the state of the guests.
    pub state_dir: PathBuf,
    /// The host's name. Default: the name with which it joined, or the machine's host name.
    pub host: Option<HostName>,
    /// The host's address. Default: the local address of its connection to the controller.
    pub my_ip: Option<IpAddr>,
    /// The options of the guests' files.
    pub files: kilonova_disks::DisksConfig,
    /// `[libvirt]`.
    pub libvirt: kilonova_libvirt::LibvirtConfig,
    /// `[linux_bridge]` and `[network]`.
    pub network: kilonova_host_network::HostNetworkConfig,
    /// The options of volumes; host and address are set later.
    pub volumes: kilonova_volumes::VolumesConfig,
    /// `[DEFAULT] my_block_storage_ip`. Default: the host's address.
    pub storage_ip: Option<IpAddr>,
    /// Memory reserved for the host itself, MiB.
    pub reserved_memory_mb: i64,
    /// CPUs reserved for the host itself.
    pub reserved_cpus: i64,
    /// Disk reserved for the host itself, GiB.
    pub reserved_disk_gb: i64,
    /// How the host's CPUs and memory pages are divided.
    pub cells: CellOptions,
    /// `[compute] numa_in_placement`: CPUs and memory as one resource provider for each NUMA cell.
    pub numa_in_placement: bool,
    /// Overcommit ratios: VCPU, MEMORY_MB, DISK_GB.
    pub ratios: [Ratio; 3],
    /// Interval of checks for guests whose power state changed outside the API.
    pub power_sync: Option<Duration>,
    /// Number of servers that are reconciled concurrently.
    pub concurrency: usize,
    /// `[node] control`, with `token_file`: for tests and for one machine.
    pub by_token: Option<(String, PathBuf)>,
    /// `[node] control` of a host that joined: the URLs of the controllers, instead of the one with
    /// which it enrolled.
    pub controllers: Option<String>,
    /// Where to install certificates for libvirt; nowhere if `None`.
    pub pki_dir: Option<PathBuf>,
    /// Mount point of sysfs.
    pub sysfs: PathBuf,
    /// `[devices]` and `[mdev_*]`.
    pub mdev: MdevOptions,
    /// `[pci]`, `[agent]` and similar.
    pub sources: Discovery,
    /// True if debug logs are on.
    pub debug: bool,
    /// The format of log lines.
    pub log_format: Option<LogFormat>,
    /// Options of the file that have no effect.
    pub notes: Vec<Note>,
}

/// The options of the command line, which override the file.
#[derive(Debug, Default)]
pub struct CommandLine {
    /// The state directory.
    pub state_dir: Option<PathBuf>,
    /// The host's name.
    pub host: Option<HostName>,
    /// The controller, for a host that has not joined.
    pub control: Option<String>,
    /// The file with the shared token.
    pub token_file: Option<PathBuf>,
}

impl Settings {
    /// Reads the file, if there is one, and applies the command line.
    ///
    /// # Errors
    /// A message with file, line, group and option.
    pub fn read(config: Option<&Path>, command_line: CommandLine) -> Result<Self, Failure> {
        let file = config.map(|path| File::read(path, KNOWN)).transpose()?.unwrap_or_default();
        let state_dir = command_line.state_dir.or(file.path("DEFAULT", "state_path"));
        let state_dir = state_dir.unwrap_or_else(|| PathBuf::from("/var/lib/kilonova-agent"));
        let host =
            command_line.host.or_else(|| file.get("DEFAULT", "host").map(HostName::verbatim));
        if let Some(host) = &host {
            kilonova_pki::check_host(host).map_err(|error| match file.get("DEFAULT", "host") {
                Some(_) => file.wrong("DEFAULT", "host", &error.to_string()),
                None => Failure::Refused(format!("--host: {error}")),
            })?;
        }
        // Only the controller uses aliases, but a nova.conf of a compute host has them too.
        sources::aliases(&file)?;
        let cells = cells::read(&file)?;
        let guest_cpus = cells.shared().cloned();
        let numa_in_placement = cells::in_placement(&file, &cells)?;
        Ok(Self {
            files: files::read(&file, state_dir.join("instances"))?,
            libvirt: kilonova_libvirt::LibvirtConfig { guest_cpus, ..libvirt::read(&file)? },
            cells,
            numa_in_placement,
            network: network(&file)?,
            volumes: volumes::read(&file, &state_dir)?,
            storage_ip: file.parse("DEFAULT", "my_block_storage_ip", "an address")?,
            state_dir,
            host,
            my_ip: file.parse("DEFAULT", "my_ip", "an address")?,
            reserved_memory_mb: least(&file, "reserved_host_memory_mb", 512)?,
            reserved_cpus: cells::reserved_cpus(&file, least(&file, "reserved_host_cpus", 0)?)?,
            // Nova: `convert_mb_to_ceil_gb`.
            reserved_disk_gb: least(&file, "reserved_host_disk_mb", 0)?.saturating_add(1023) / 1024,
            ratios: [
                ratio(&file, "cpu_allocation_ratio", 4.0)?,
                ratio(&file, "ram_allocation_ratio", 1.0)?,
                ratio(&file, "disk_allocation_ratio", 1.0)?,
            ],
            power_sync: power_sync(&file)?,
            concurrency: concurrency(&file)?,
            by_token: by_token(&file, command_line.control, command_line.token_file)?,
            controllers: file.get("node", "control").map(str::to_owned),
            pki_dir: file.path("node", "pki_dir"),
            sysfs: sysfs(&file),
            mdev: devices::options(&file)?,
            sources: sources::read(&file)?,
            debug: file.parse("DEFAULT", "debug", "true or false")?.unwrap_or(false),
            log_format: file.parse("DEFAULT", "log_format", LogFormat::EXPECTED)?,
            notes: file.notes().to_vec(),
        })
    }
}

/// Mount point of sysfs.
fn sysfs(file: &File) -> PathBuf {
    file.path("node", "sysfs").unwrap_or_else(|| PathBuf::from("/sys"))
}

fn network(file: &File) -> Result<kilonova_host_network::HostNetworkConfig, Failure> {
    const GROUP: &str = "linux_bridge";
    let text = |option| file.get(GROUP, option).unwrap_or_default();
    let read = kilonova_host_network::HostNetworkConfig::from_options(
        text("physical_interface_mappings"),
        text("bridge_mappings"),
    );
    let metadata = file.parse("network", "metadata", "true or false")?.unwrap_or(true);
    let routers = file.parse("network", "routers", "true or false")?.unwrap_or(true);
    let read =
        read.map(|read| kilonova_host_network::HostNetworkConfig { metadata, routers, ..read });
    read.map_err(|why| {
        let option = why.split(':').next().unwrap_or_default();
        file.wrong(GROUP, option, why.split_once(": ").map_or(&*why, |(_, why)| why))
    })
}

fn least(file: &File, option: &str, usual: i64) -> Result<i64, Failure> {
    match file.parse("DEFAULT", option, "an integer of at least 0")? {
        None => Ok(usual),
        Some(value) if value >= 0 => Ok(value),
        Some(_) => Err(file.wrong("DEFAULT", option, "it must be 0 or more")),
    }
}

/// An overcommit ratio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// The ratio.
    pub value: f64,
    /// True if a ratio that is set through Placement overrides it.
    pub is_initial: bool,
}

/// An overcommit ratio (`_get_allocation_ratios` of `nova/virt/driver.py`). The option itself always counts. The option
/// `initial_…` and its default are only the ratio of a new inventory.
fn ratio(file: &File, option: &str, usual: f64) -> Result<Ratio, Failure> {
    let initial = format!("initial_{option}");
    for (option, is_initial) in [(option, false), (&initial, true)] {
        match file.parse::<f64>("DEFAULT", option, "a number above 0")? {
            None => {}
            Some(value) if value.is_finite() && value > 0.0 => {
                return Ok(Ratio { value, is_initial });
            }
            Some(_) => return Err(file.wrong("DEFAULT", option, "it must be above 0")),
        }
    }
    Ok(Ratio { value: usual, is_initial: true })
}

fn power_sync(file: &File) -> Result<Option<Duration>, Failure> {
    let seconds = file.parse::<i64>("DEFAULT", "sync_power_state_interval", "seconds")?;
    Ok(match seconds.unwrap_or(600) {
        never if never < 0 => None,
        0 => Some(Duration::from_secs(60)),
        seconds => Some(Duration::from_secs(seconds.unsigned_abs())),
    })
}

fn concurrency(file: &File) -> Result<usize, Failure> {
    const OPTION: &str = "max_concurrent_builds";
    match file.parse("DEFAULT", OPTION, "an integer of at least 0")? {
        None => Ok(10),
        Some(0) => Ok(256),
        Some(many) => Ok(many),
    }
}

fn by_token(
    file: &File,
    control: Option<String>,
    token: Option<PathBuf>,
) -> Result<Option<(String, PathBuf)>, Failure> {
    let token = token.or_else(|| file.path("node", "token_file"));
    if control.is_some() && token.is_none() {
        return Err(Failure::Refused(
            "--control needs --token-file ([node] token_file), for tests and for one \
             machine; a host of a cloud joins it: kilonova-agent join"
                .into(),
        ));
    }
    match (control.or_else(|| file.get("node", "control").map(str::to_owned)), token) {
        (Some(control), Some(token)) => Ok(Some((control, token))),
        // Without a token these are the controllers of a host that joined.
        (_, None) => Ok(None),
        (None, Some(_)) => Err(Failure::Refused(
            "--token-file ([node] token_file) needs --control ([node] control)".into(),
        )),
    }
}

#[cfg(test)]
mod tests;
