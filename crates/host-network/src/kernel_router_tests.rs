//! A host with a router: guests reach the external network and are reached from it, with real
//! address translation.

use kilonova_node_api::{FloatingAddress, Router, RouterAddress, SixMode};

use super::*;
use crate::routers::{self, Loaded};
use crate::testing::network;

#[test]
fn guests_reach_the_outside_and_are_reached() {
    outside("router");
}

/// The router of the other tests, with its external network on a separate physical network.
fn router() -> Router {
    let mut router = routers::tests::router();
    router.interfaces[0].physical_network = "physnet2".into();
    router.interfaces[0].vlan = None;
    router.interfaces[1].addresses.truncate(1);
    router.routes.clear();
    router.floating = vec![floating(8, 2)];
    router
}

fn floating(outer: u8, guest: u8) -> FloatingAddress {
    FloatingAddress { floating: [198, 51, 100, outer].into(), fixed: [10, 0, 0, guest].into() }
}

/// A host with its routers' state.
struct Host {
    network: HostNetwork,
    guests: Vec<Interface>,
    loaded: Loaded,
}

impl Host {
    /// Reaches the desired state, without packet filters where the kernel has none for bridges.
    async fn make(&mut self, all: &[Router]) -> NetworkFailures {
        let mut desired = wanted(self.guests.clone(), Filters::default());
        desired.routers = all.to_vec().into();
        let nets = Nets::of(&desired, &self.network.config);
        let mut lacking = NetworkFailures::default();
        self.network.links(&nets, &mut true, &mut lacking).await.expect("the links are listed");
        let folder = self.network.config.folder.join("routers");
        lacking.routers = routers::reach(&folder, &nets, all, &lacking, &mut self.loaded).await;
        lacking
    }

    fn router_pid(&self) -> Option<String> {
        let folder = self.network.config.folder.join("routers");
        let pid = folder.join(router().id.to_string()).join("pid");
        std::fs::read_to_string(pid).ok().map(|text| text.trim().to_owned())
    }
}

pub(super) async fn host() {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))
        .expect("the file attributes are set");
    let mut config = HostNetworkConfig { folder: folder.path().join("network"), ..config() };
    config.uplinks.insert("physnet2".into(), Uplink::Interface("up2".into()));
    config.metadata = false;
    let outer = Space::new();
    let lan = Space::new();
    ip("link set dev lo up");
    ip(&format!("link add name up0 type veth peer name eth0 netns {}", lan.pid()));
    ip(&format!("link add name up2 type veth peer name eth0 netns {}", outer.pid()));
    lan.ip("link set dev eth0 up");
    outer.ip("link set dev eth0 up");
    outer.ip("address add 198.51.100.1/24 dev eth0");
    // A neighbour entry with another owner of the address.
    outer.ip("neigh replace 198.51.100.8 lladdr 02:00:00:00:00:99 dev eth0 nud stale");
    let (two, three) = (interface(2), interface(3));
    let (a, b) = (guest(&two), guest(&three));
    for (space, last) in [(&a, 2), (&b, 3)] {
        space.ip(&format!("address add 10.0.0.{last}/24 dev eth0"));
        space.ip("route add default via 10.0.0.1");
    }
    let mut host =
        Host { network: HostNetwork::new(config), guests: vec![two, three], loaded: Loaded::new() };
    assert_eq!(host.make(&[router()]).await, NetworkFailures::default());
    let mut echoes: Vec<Child> = [&outer, &a, &b]
        .iter()
        .map(|space| space.run("echo").stdout(Stdio::null()).spawn().expect("the program starts"))
        .collect();
    let gateway = router().interfaces[0].mac.clone();
    let neighbour = |address: &str| -> String {
        let net = format!("--net=/proc/{}/ns/net", outer.pid());
        let list = ["--", "ip", "neigh", "show", address];
        let done = Command::new("nsenter").arg(&net).args(list).output();
        String::from_utf8_lossy(&done.expect("the program runs").stdout).into_owned()
    };
    assert!(
        patiently(|| neighbour("198.51.100.8").contains(&gateway)),
        "a router announces itself"
    );
    // No outside host has a route to guests, so each answer proves a translation.
    assert!(patiently(|| a.reaches("10.0.0.2", "198.51.100.1")), "by its floating IP");
    assert!(b.reaches("10.0.0.3", "198.51.100.1"), "by the router's address");
    assert!(outer.reaches("198.51.100.1", "198.51.100.8"), "a guest is reached");
    assert!(b.reaches("10.0.0.3", "198.51.100.8"), "by another guest too");
    assert!(a.reaches("10.0.0.2", "198.51.100.8"), "and by itself");
    assert!(!outer.reaches("198.51.100.1", "198.51.100.9"), "nothing has this address");

    // Reconciling the same state again changes nothing.
    let pid = host.router_pid().expect("the router has a process");
    assert_eq!(host.make(&[router()]).await, NetworkFailures::default());
    assert_eq!(host.router_pid(), Some(pid.clone()));
    assert!(a.reaches("10.0.0.2", "198.51.100.1"));

    // Another floating IP, which is announced to its neighbours immediately.
    outer.ip("neigh replace 198.51.100.9 lladdr 02:00:00:00:00:99 dev eth0 nud stale");
    let more = Router { floating: vec![floating(9, 3)], ..router() };
    assert_eq!(host.make(std::slice::from_ref(&more)).await, NetworkFailures::default());
    assert!(patiently(|| neighbour("198.51.100.9").contains(&gateway)), "it is announced");
    assert!(outer.reaches("198.51.100.1", "198.51.100.9"), "it is reached");
    assert!(!outer.reaches("198.51.100.1", "198.51.100.8"), "the other one is gone");

    // Without SNAT, only guests with a floating IP get answers.
    let bare = Router { snat: false, ..more };
    assert_eq!(host.make(std::slice::from_ref(&bare)).await, NetworkFailures::default());
    assert!(b.reaches("10.0.0.3", "198.51.100.1"));
    assert!(!a.reaches("10.0.0.2", "198.51.100.1"));

    // Lost translations and a lost process are restored, also by a new agent.
    let net = format!("--net=/proc/{pid}/ns/net");
    let flushed = Command::new("nsenter").args([&*net, "--", "nft", "flush", "ruleset"]).status();
    assert!(flushed.expect("the program runs").success());
    assert_eq!(host.make(&[router()]).await, NetworkFailures::default());
    assert!(outer.reaches("198.51.100.1", "198.51.100.8"));
    end_process(pid.parse().expect("the pid is valid"));
    host.loaded = Loaded::new();
    assert_eq!(host.make(&[router()]).await, NetworkFailures::default());
    assert_ne!(host.router_pid(), Some(pid));
    assert!(patiently(|| outer.reaches("198.51.100.1", "198.51.100.8")), "the router is back");

    // An agent died before the namespace was complete, so forwarding is off.
    let pid = host.router_pid().expect("the router has a process");
    let net = format!("--net=/proc/{pid}/ns/net");
    let undo = "echo 0 > /proc/sys/net/ipv4/ip_forward && ip link set dev lo down";
    let undone = Command::new("nsenter").args([&*net, "--", "sh", "-c", undo]).status();
    assert!(undone.expect("the program runs").success());
    assert!(!outer.reaches("198.51.100.1", "198.51.100.8"));
    assert_eq!(host.make(&[router()]).await, NetworkFailures::default());
    assert_eq!(host.router_pid(), Some(pid), "its connections continue");
    assert!(patiently(|| outer.reaches("198.51.100.1", "198.51.100.8")));

    // A subnet with a router advertisement mode is advertised without a restart of the router.
    if crate::metadata::has_six() {
        let six = || RouterAddress {
            address: "fd00:7::1".parse().expect("the address is valid"),
            prefix: 64,
            gateway: None,
            advertisement: Some(SixMode::Slaac),
            dns: Vec::new(),
        };
        let mut advertised = router();
        advertised.interfaces[1].addresses.push(six());
        let pid = host.router_pid();
        assert_eq!(host.make(std::slice::from_ref(&advertised)).await, NetworkFailures::default());
        assert_eq!(host.router_pid(), pid, "connections continue");
        let has = |space: &Space, prefix: &str| {
            let net = format!("--net=/proc/{}/ns/net", space.pid());
            let list = ["--", "ip", "-6", "address", "show", "dev", "eth0"];
            let done = Command::new("nsenter").arg(&net).args(list).output();
            String::from_utf8_lossy(&done.expect("the program runs").stdout).contains(prefix)
        };
        let mac = "fd00:7::f816:3eff:fe00:2";
        assert!(patiently(|| has(&a, mac)), "a guest has the address derived from its MAC address");
        assert_eq!(host.make(&[router()]).await, NetworkFailures::default());
    }

    // The router moves to another host; the network of the guests stays.
    let pid = host.router_pid().expect("the router has a process");
    assert_eq!(host.make(&[]).await, NetworkFailures::default());
    assert!(patiently(|| !std::path::Path::new(&format!("/proc/{pid}")).exists()));
    let left = links::read().await.expect("the links are listed");
    assert!(!left.keys().any(|name| name.starts_with("kr")), "{left:?}");
    let outside_bridge = format!("brq{}", &network(9).to_string()[..11]);
    assert!(!left.contains_key(&outside_bridge) && left.contains_key("up2"), "{left:?}");
    assert!(a.reaches("10.0.0.2", "10.0.0.3"), "guests still reach each other");
    echoes.iter_mut().for_each(|echo| {
        let _ = echo.kill();
        let _ = echo.wait();
    });
    host.guests.clear();
    drop((a, b));
    assert!(patiently(|| !tap_is_there(&interface(2)) && !tap_is_there(&interface(3))));
    host.make(&[]).await;
    let left = links::read().await.expect("the links are listed");
    assert_eq!(left.values().filter(|link| link.is_ours()).count(), 0, "{left:?}");
}
