//! The host's inventory: processors, memory, disk, name, address.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;

use kilonova_ids::HostName;
use kilonova_node_api::Registration;
use kilonova_program::Failure;

use crate::settings::Settings;

const MIB: u64 = 1024 * 1024;
const GIB: u64 = 1024 * MIB;

/// The host's description; the agent fills in hypervisor and devices.
///
/// # Errors
/// If the kernel does not provide a value.
pub fn registration(
    settings: &Settings,
    host: &HostName,
    address: IpAddr,
) -> Result<Registration, Failure> {
    let read = |path: &str| {
        std::fs::read_to_string(path)
            .map_err(|e| Failure::failed(&format!("cannot read {path}"), e))
    };
    let meminfo = read("/proc/meminfo")?;
    let memory_mb = memory_mb(&meminfo)
        .ok_or_else(|| Failure::Failed("/proc/meminfo has no MemTotal".into()))?;
    let online = std::fs::read_to_string(settings.sysfs.join("devices/system/cpu/online"));
    let counted = online.ok().and_then(|text| processors(&text));
    let vcpus = match counted {
        Some(count) => count,
        None => std::thread::available_parallelism()
            .map_err(|e| Failure::failed("cannot count the processors", e))?
            .get(),
    };
    let space = space(&settings.files.instances_path)?;
    Ok(Registration {
        host: host.to_owned(),
        machine_id: read("/etc/machine-id").unwrap_or_default().trim().to_owned(),
        hypervisor_type: String::new(),
        hypervisor_version: 0,
        host_ip: address.to_string(),
        vcpus: i64::try_from(vcpus).unwrap_or(i64::MAX),
        memory_mb,
        disk_gb: i64::try_from(space.total / GIB).unwrap_or(i64::MAX),
        ratios: settings.ratios.map(|ratio| ratio.value),
        initial_ratios: settings.ratios.map(|ratio| ratio.is_initial),
        reserved_memory_mb: settings.reserved_memory_mb,
        reserved_cpus: settings.reserved_cpus,
        reserved_disk_gb: settings.reserved_disk_gb,
        traits: vec!["COMPUTE_NODE".into()],
        devices: Vec::new(),
        agent_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        attempt: None,
        connector: None,
        routes: settings
            .network
            .routers
            .then(|| settings.network.uplinks.keys().cloned().collect()),
        cells: None,
        numa_in_placement: settings.numa_in_placement,
    })
}

/// Space on a file system, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Total.
    pub total: u64,
    /// Available.
    pub free: u64,
}

/// The space on the file system of a directory that may not exist yet.
///
/// # Errors
/// If the file system cannot be queried.
pub fn space(folder: &Path) -> Result<Space, Failure> {
    let there = folder.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let stats = rustix::fs::statvfs(there).map_err(|e| {
        Failure::failed(&format!("cannot query the file system of {}", there.display()), e)
    })?;
    Ok(Space { total: stats.f_blocks * stats.f_frsize, free: stats.f_bavail * stats.f_frsize })
}

fn memory_mb(meminfo: &str) -> Option<i64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: i64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024)
}

/// The number of processors in a list such as `0-3,8`.
fn processors(text: &str) -> Option<usize> {
    text.trim().split(',').try_fold(0, |sum: usize, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        Some(sum + last.checked_sub(first)? + 1)
    })
}

/// The local address of a connection to the controller; sends nothing.
pub fn address_towards(url: &str) -> Option<IpAddr> {
    use std::net::ToSocketAddrs;
    let rest = url.split_once("://")?.1;
    let place = rest.split('/').next()?;
    let there: SocketAddr = match place.to_socket_addrs() {
        Ok(mut found) => found.next()?,
        Err(_) => (place, 443).to_socket_addrs().ok()?.next()?,
    };
    let any: IpAddr = match there {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(there).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_files_are_parsed() {
        assert_eq!(memory_mb("MemTotal:       16384000 kB\nMemFree: 1 kB\n"), Some(16000));
        assert_eq!(memory_mb("MemFree: 1 kB\n"), None);
        assert_eq!(processors("0-3,8\n"), Some(5));
        assert_eq!(processors("0"), Some(1));
        assert_eq!((processors(""), processors("3-1")), (None, None));
        assert_eq!(address_towards("http://127.0.0.1:9/x"), Some(Ipv4Addr::LOCALHOST.into()));
        assert_eq!(address_towards("nothing"), None);
        let here = space(Path::new("/nowhere/at/all")).expect("the root directory exists");
        assert!(here.total >= here.free && here.total > 0);
    }
}
