//! DHCP on a network: a dnsmasq in its own network namespace, connected to the network's bridge by
//! a veth pair.
//!
//! The namespace separates networks with the same addresses, and guests from the host. It lives as
//! long as its dnsmasq and has no name: named namespaces are mounts, which a service with a private
//! file system view cannot share. A dnsmasq outlives the agent, so that guests can renew their
//! leases; the next agent recognizes it by the directory in its command line.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kilonova_hypervisor::write_atomically;
use kilonova_ids::NetworkId;
use rustix::process::{Pid, Signal, kill_process};

use crate::links::{OURS, read};
use crate::nets::{Dhcp, Net};
use crate::run::{run, words};

/// Lease time in seconds.
const LEASE: u32 = 86400;
/// How long a dnsmasq may take to start or stop.
const PATIENCE: Duration = Duration::from_secs(5);
/// The veth end in the namespace.
const INSIDE: &str = "eth0";

fn folder_of(folder: &Path, network: NetworkId) -> PathBuf {
    folder.join(network.to_string())
}

/// A process and its command line.
type Process = (i32, Vec<String>);

/// Our running processes, by the network's directory.
fn running(folder: &Path) -> Result<BTreeMap<PathBuf, Vec<Process>>, String> {
    let mut found: BTreeMap<PathBuf, Vec<Process>> = BTreeMap::new();
    let entries = std::fs::read_dir("/proc").map_err(|error| format!("/proc: {error}"))?;
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        // A process that ends in between is skipped.
        let Ok(line) = std::fs::read(entry.path().join("cmdline")) else { continue };
        let line: Vec<String> = line
            .split(|byte| *byte == 0)
            .filter(|word| !word.is_empty())
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect();
        let is_dnsmasq = line.first().is_some_and(|first| first.ends_with("dnsmasq"));
        let its = line.iter().find_map(|word| word.strip_prefix("--pid-file="));
        let its = its.and_then(|file| Path::new(file).parent());
        if let Some(its) = its.filter(|its| is_dnsmasq && its.parent() == Some(folder)) {
            found.entry(its.to_owned()).or_default().push((pid, line));
        }
    }
    Ok(found)
}

/// Stops our processes of networks that are not in the set.
pub(crate) fn keep_only(folder: &Path, wanted: &BTreeSet<NetworkId>) -> Result<(), String> {
    let wanted: BTreeSet<PathBuf> = wanted.iter().map(|id| folder_of(folder, *id)).collect();
    for (its, processes) in running(folder)? {
        if !wanted.contains(&its) {
            processes.iter().try_for_each(|(pid, _)| end(*pid))?;
        }
    }
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(()) };
    for entry in entries.flatten() {
        let is_networks =
            entry.file_name().to_str().is_some_and(|name| name.parse::<NetworkId>().is_ok());
        if is_networks && !wanted.contains(&entry.path()) {
            std::fs::remove_dir_all(entry.path())
                .map_err(|error| format!("{}: {error}", entry.path().display()))?;
        }
    }
    Ok(())
}

fn end(pid: i32) -> Result<(), String> {
    let Some(id) = Pid::from_raw(pid) else { return Ok(()) };
    match kill_process(id, Signal::TERM) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(format!("could not stop dnsmasq {pid}: {error}")),
    }
}

/// Starts or reloads the dnsmasq of a network.
pub(crate) async fn serve(folder: &Path, net: &Net, dhcp: &Dhcp) -> Result<(), String> {
    let its = folder_of(folder, net.id);
    let wanted = arguments(&its, dhcp);
    let files = [("hosts", hosts(dhcp)), ("options", options(net, dhcp))];
    let mut changed = false;
    open_folder(&its)?;
    for (name, text) in &files {
        let file = its.join(name);
        if std::fs::read_to_string(&file).is_ok_and(|is| is == *text) {
            continue;
        }
        write_atomically(&file, text.as_bytes())
            .map_err(|error| format!("{}: {error}", file.display()))?;
        changed = true;
    }
    let mut processes = running(folder)?.remove(&its).unwrap_or_default();
    let right = processes.iter().position(|(_, line)| line.get(1..) == Some(&wanted[..]));
    let pid = match right.map(|at| processes.swap_remove(at).0) {
        Some(pid) => {
            if changed && let Some(id) = Pid::from_raw(pid) {
                kill_process(id, Signal::HUP)
                    .map_err(|error| format!("could not reload dnsmasq {pid}: {error}"))?;
            }
            processes.iter().try_for_each(|(pid, _)| end(*pid))?;
            pid
        }
        None => {
            for (pid, _) in &processes {
                end(*pid)?;
            }
            start(folder, &its, &wanted).await?
        }
    };
    plug(net, dhcp, pid).await
}

/// Makes a directory readable for dnsmasq, which drops its privileges.
fn open_folder(folder: &Path) -> Result<(), String> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(folder)
        .map_err(|error| format!("{}: {error}", folder.display()))
}

async fn start(folder: &Path, its: &Path, arguments: &[String]) -> Result<i32, String> {
    let begun = Instant::now();
    while running(folder)?.contains_key(its) {
        if begun.elapsed() > PATIENCE {
            return Err(format!("the dnsmasq of {} did not stop", its.display()));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut line = words(&["--net", "--", "dnsmasq"]);
    line.extend(arguments.iter().cloned());
    run("unshare", &line, b"").await?;
    loop {
        if let Some((pid, _)) = running(folder)?.remove(its).and_then(|mut all| all.pop()) {
            return Ok(pid);
        }
        if begun.elapsed() > PATIENCE {
            return Err(format!("the dnsmasq of {} exited at once", its.display()));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Connects the namespace of a dnsmasq to the network's bridge, with its addresses.
async fn plug(net: &Net, dhcp: &Dhcp, pid: i32) -> Result<(), String> {
    let (name, bridge) = (net.dhcp_link(), net.bridge());
    let (of, mtu) = (pid.to_string(), net.mtu.to_string());
    let inside = |line: &[&str]| {
        let mut all = vec![format!("--net=/proc/{pid}/ns/net"), "--".into(), "ip".into()];
        all.extend(words(line));
        all
    };
    let seen = run("nsenter", &inside(&["-json", "-details", "address", "show"]), b"").await?;
    let there = crate::links::parse(&seen)?;
    let out = read().await?;
    let is = out.get(&name);
    if is.is_some_and(|link| !link.is_ours()) {
        return Err(format!(
            "{name} exists on this host but was not created by Kilonova; remove it"
        ));
    }
    let mut fresh = false;
    if is.is_none() || !there.contains_key(INSIDE) {
        if is.is_some() {
            run("ip", &words(&["link", "delete", "dev", &name]), b"").await?;
        }
        let add =
            ["link", "add", "name", &name, "type", "veth", "peer", "name", INSIDE, "netns", &of];
        run("ip", &words(&add), b"").await?;
        for set in [["alias", OURS], ["addrgenmode", "none"], ["mtu", mtu.as_str()]] {
            run("ip", &words(&["link", "set", "dev", &name, set[0], set[1]]), b"").await?;
        }
        let set = ["link", "set", "dev", INSIDE, "addrgenmode", "none"];
        run("nsenter", &inside(&set), b"").await?;
        let set = ["link", "set", "dev", INSIDE, "address", &dhcp.mac, "mtu", &mtu, "up"];
        run("nsenter", &inside(&set), b"").await?;
        fresh = true;
    }
    if fresh || is.is_none_or(|link| link.master.as_ref() != Some(&bridge) || !link.is_up()) {
        run("ip", &words(&["link", "set", "dev", &name, "master", &bridge, "up"]), b"").await?;
    }
    let has: BTreeSet<(IpAddr, u8)> = there
        .get(INSIDE)
        .filter(|_| !fresh)
        .map(|link| {
            let read = |address: &crate::links::Address| {
                Some((address.local.as_ref()?.parse().ok()?, address.prefixlen?))
            };
            link.addresses.iter().filter_map(read).collect()
        })
        .unwrap_or_default();
    for (address, prefix) in dhcp.own.difference(&has) {
        let text = format!("{address}/{prefix}");
        let mut add = vec!["address", "add", text.as_str(), "dev", INSIDE];
        if address.is_ipv6() {
            add.push("nodad");
        }
        run("nsenter", &inside(&add), b"").await?;
    }
    for (address, prefix) in has.difference(&dhcp.own) {
        let text = format!("{address}/{prefix}");
        run("nsenter", &inside(&["address", "delete", &text, "dev", INSIDE]), b"").await?;
    }
    Ok(())
}

fn tag(subnet: IpAddr) -> String {
    format!("subnet-{}", subnet.to_string().replace(['.', ':'], "-"))
}

fn mask(prefix: u8) -> IpAddr {
    crate::nets::base(IpAddr::from([255, 255, 255, 255]), prefix)
}

/// The arguments of dnsmasq: only hosts listed in `hosts` get an address, and no other service
/// runs.
pub(crate) fn arguments(its: &Path, dhcp: &Dhcp) -> Vec<String> {
    let file = |name: &str| its.join(name).display().to_string();
    let mut all = vec![
        "--conf-file=/dev/null".to_owned(),
        format!("--pid-file={}", file("pid")),
        format!("--dhcp-hostsfile={}", file("hosts")),
        format!("--dhcp-optsfile={}", file("options")),
        format!("--dhcp-leasefile={}", file("leases")),
        "--no-hosts".into(),
        "--no-resolv".into(),
        "--port=0".into(),
        "--no-ping".into(),
        "--dhcp-authoritative".into(),
        "--bind-dynamic".into(),
        format!("--interface={INSIDE}"),
        "--except-interface=lo".into(),
        "--dhcp-lease-max=65536".into(),
    ];
    for (base, subnet) in &dhcp.subnets {
        let (tag, mask) = (tag(*base), mask(subnet.prefix));
        all.push(format!("--dhcp-range=set:{tag},{base},static,{mask},{LEASE}s"));
    }
    all
}

/// The hosts file: each guest's MAC and IP address.
pub(crate) fn hosts(dhcp: &Dhcp) -> String {
    let mut text = String::new();
    for (mac, host) in &dhcp.hosts {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{mac},{}", host.address);
    }
    text
}

/// The DHCP options.
pub(crate) fn options(net: &Net, dhcp: &Dhcp) -> String {
    let mut text = String::new();
    for (base, subnet) in &dhcp.subnets {
        let tag = tag(*base);
        let mut say = |option: &str, value: &str| {
            let comma = if value.is_empty() { "" } else { "," };
            let _ = writeln!(text, "tag:{tag},{option}{comma}{value}");
        };
        let gateway = subnet.gateway.map(|gateway| gateway.to_string());
        // Without a value dnsmasq omits the option instead of sending its default.
        say("option:router", gateway.as_deref().unwrap_or_default());
        let dns: Vec<String> = subnet.dns.iter().map(IpAddr::to_string).collect();
        say("option:dns-server", &dns.join(","));
        say("option:mtu", &net.mtu.to_string());
        let routes = subnet.routes.iter().filter(|(to, _)| {
            kilonova_node_api::Prefix::parse(to).is_some_and(|to| to.address.is_ipv4())
        });
        let mut routes: Vec<String> =
            routes.map(|(destination, hop)| format!("{destination},{hop}")).collect();
        if !routes.is_empty() {
            // A client that reads these routes ignores the router option.
            routes.extend(gateway.map(|gateway| format!("0.0.0.0/0,{gateway}")));
            say("option:classless-static-route", &routes.join(","));
            say("249", &routes.join(","));
        }
    }
    text
}

#[cfg(test)]
#[path = "dhcp_tests.rs"]
mod tests;
