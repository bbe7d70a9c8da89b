//! The desired state that the agent sets on its host's networks, and when.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use kilonova_ids::{NetworkId, PortId, ServerId};
use kilonova_node::{DesiredNetworks, Network, NetworkFailures, NetworkFuture, Node, UnplugFuture};
use kilonova_node_api::{Desired, Domain, Filters, Interface, Outcome, PortFilter, Power, Vif};
use serde_json::Value;

use crate::agent::control::Control;
use crate::agent::host::{Host, guest, present};

fn interface(network: NetworkId) -> Interface {
    Interface {
        port: PortId::new_v4(),
        mac: "fa:16:3e:00:00:01".into(),
        network,
        network_type: "vlan".into(),
        physical_network: "physnet1".into(),
        vlan: Some(100),
        mtu: 1500,
        addresses: Vec::new(),
        device: None,
        tag: None,
        dhcp_mac: None,
        vif: None,
    }
}

fn connected(name: &str, interfaces: &[Interface]) -> Domain {
    let mut domain = guest(name, Vec::new());
    domain.config.interfaces = interfaces.to_vec();
    domain
}

/// The number of interfaces by server that the simulated host recorded last.
fn plugged(host: &Host) -> Vec<(String, usize)> {
    let Ok(text) = std::fs::read_to_string(host.folder("network")) else { return Vec::new() };
    let answer: Value = serde_json::from_str(&text).expect("the text is JSON");
    let guests = answer["guests"].as_object().expect("the value is an object");
    guests.iter().map(|(id, all)| (id.clone(), all.as_array().map_or(0, Vec::len))).collect()
}

#[tokio::test]
async fn networks_are_created_before_guests_and_removed_after_them() {
    let (host, control) = (Host::new(""), Control::new());
    let (one, other) = (ServerId::new_v4(), ServerId::new_v4());
    let network = NetworkId::new_v4();
    let (first, second) = (interface(network), interface(network));
    let passed = Interface { device: Some("0000:0c:1f.3".into()), ..interface(network) };
    let running = host.run(&control);
    let plain = control.want(other, present(&guest("plain", Vec::new())));
    control.expect(plain, Outcome::Running).await;
    assert!(!host.folder("network").exists(), "a guest without networks needs none");

    let vif = Some(Vif::Ovs { bridge: "br-int".into() });
    let external = Interface { vif, ..interface(network) };
    let domain = connected("one", &[first.clone(), passed.clone(), external]);
    control.expect(control.want(one, present(&domain)), Outcome::Running).await;
    assert_eq!(
        plugged(&host),
        [(one.to_string(), 1)],
        "neither a passed-through function nor a port of Neutron needs a bridge of ours"
    );
    let domain = connected("one", &[first.clone(), second.clone()]);
    control.expect(control.want(one, present(&domain)), Outcome::Running).await;
    assert_eq!(plugged(&host), [(one.to_string(), 2)]);
    let domain = connected("one", std::slice::from_ref(&second));
    control.expect(control.want(one, present(&domain)), Outcome::Running).await;
    assert_eq!(plugged(&host), [(one.to_string(), 1)]);

    let filters = Filters {
        ports: vec![PortFilter {
            port: second.port,
            up: true,
            secure: true,
            groups: Vec::new(),
            pairs: Vec::new(),
        }],
        ..Filters::default()
    };
    control.with(|state| state.filters = Some(filters));
    let generation = control.want(other, present(&connected("plain", &[first])));
    control.expect(generation, Outcome::Running).await;
    let message = std::fs::read_to_string(host.folder("network")).expect("the file exists");
    let message: Value = serde_json::from_str(&message).expect("the text is JSON");
    assert_eq!(message["filters"]["ports"][0]["port"], second.port.to_string());
    assert_eq!(plugged(&host).len(), 2);

    running.stop().await;
    std::fs::remove_file(host.folder("network")).expect("the file exists");
    let running = host.run(&control);
    control.until("networks of both guests", |_| (plugged(&host).len() == 2).then_some(())).await;
    for server in [one, other] {
        control.expect(control.want(server, Desired::Absent), Outcome::Absent).await;
    }
    assert!(!host.folder("network").exists());
    running.stop().await;
}

#[tokio::test]
async fn a_network_failure_fails_the_build_with_its_reason() {
    let (host, control) = (Host::new(""), Control::new());
    let server = ServerId::new_v4();
    let domain = connected("one", &[interface(NetworkId::new_v4())]);
    let running = host.run(&control);
    control.expect(control.want(ServerId::new_v4(), Desired::Absent), Outcome::Absent).await;
    std::fs::create_dir_all(host.folder("")).expect("the directory is created");
    std::fs::write(host.folder("network_fault"), "eth1 is not there\n")
        .expect("the file is written");
    let failed = Outcome::Failed { step: "network".into(), message: "eth1 is not there".into() };
    control.expect(control.want(server, present(&domain)), failed).await;
    host.assert_empty("after a failed build");
    std::fs::remove_file(host.folder("network_fault")).expect("the file exists");
    control.expect(control.want(server, present(&domain)), Outcome::Running).await;

    // A network that fails later leaves an existing guest alone.
    std::fs::write(host.folder("network_fault"), "eth1 is gone\n").expect("the file is written");
    running.stop().await;
    let running = host.run(&control);
    let off = Domain { power: Power::Off, ..domain.clone() };
    let more = connected("one", &[interface(NetworkId::new_v4())]);
    for changed in [off, more] {
        let generation = control.want(server, present(&changed));
        assert!(matches!(control.outcome(generation).await, Outcome::Failed { .. }));
        assert!(running.domain(server).await.is_some(), "the guest is not rolled back");
        // The rollback of the change finds the guest as it should be.
        control.expect(control.want(server, present(&domain)), Outcome::Running).await;
    }
    control.expect(control.want(server, Desired::Absent), Outcome::Absent).await;
    running.stop().await;
}

/// Counts the guests of each call.
#[derive(Default)]
struct Counting(Mutex<Vec<usize>>);

impl Network for Counting {
    fn make<'a>(&'a self, wanted: &'a DesiredNetworks) -> NetworkFuture<'a> {
        Box::pin(async move {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            self.0.lock().expect("the lock is not poisoned").push(wanted.guests.len());
            NetworkFailures::default()
        })
    }
}

#[tokio::test]
async fn many_guests_need_few_runs() {
    let (host, control) = (Host::new(""), Control::new());
    let counting = Arc::new(Counting::default());
    let mut parts = host.parts();
    parts.network = Arc::clone(&counting) as Arc<dyn Network>;
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let network = NetworkId::new_v4();
    let mut last = Vec::new();
    for _ in 0..40 {
        let domain = connected("one of many", &[interface(network)]);
        last.push(control.want(ServerId::new_v4(), present(&domain)));
    }
    let node = Node::new(parts).expect("the agent starts");
    let task = tokio::spawn(node.run(control.clone(), stopped));
    for generation in last {
        control.expect(generation, Outcome::Running).await;
    }
    let asked = counting.0.lock().expect("the lock is not poisoned").clone();
    assert_eq!(asked, [40], "all guests are in the first run");
    stop.send_replace(true);
    task.await.expect("the agent does not panic").expect("the agent stops without an error");
}

/// Records the ports that are removed from Open vSwitch. `fails` is true while it does not answer.
#[derive(Default)]
struct Unplugged {
    ports: Mutex<Vec<(ServerId, Vec<PortId>)>>,
    fails: AtomicBool,
}

impl Unplugged {
    fn take(&self) -> Vec<(ServerId, Vec<PortId>)> {
        std::mem::take(&mut *self.ports.lock().expect("the lock is not poisoned"))
    }
}

impl Network for Unplugged {
    fn make<'a>(&'a self, _: &'a DesiredNetworks) -> NetworkFuture<'a> {
        Box::pin(std::future::ready(NetworkFailures::default()))
    }

    fn unplug<'a>(&'a self, server: ServerId, interfaces: &'a [Interface]) -> UnplugFuture<'a> {
        let ports = interfaces.iter().map(|one| one.port).collect();
        self.ports.lock().expect("the lock is not poisoned").push((server, ports));
        let result = match self.fails.load(Ordering::SeqCst) {
            true => Err("the database of Open vSwitch does not answer".to_owned()),
            false => Ok(()),
        };
        Box::pin(std::future::ready(result))
    }
}

#[tokio::test]
async fn ports_in_open_vswitch_go_with_the_interfaces_of_a_stopped_guest() {
    let (host, control) = (Host::new(""), Control::new());
    let unplugged = Arc::new(Unplugged::default());
    let mut parts = host.parts();
    parts.network = Arc::clone(&unplugged) as Arc<dyn Network>;
    parts.settings.network_look = std::time::Duration::from_millis(50);
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let node = Node::new(parts).expect("the agent starts");
    let task = tokio::spawn(node.run(control.clone(), stopped));

    let network = NetworkId::new_v4();
    let ovs = || {
        let vif = Some(Vif::Ovs { bridge: "br-int".into() });
        Interface { vif, ..interface(network) }
    };
    let (first, second, third) = (ovs(), ovs(), ovs());
    let server = ServerId::new_v4();
    let all = [first.clone(), interface(network), second.clone(), third.clone()];
    let domain = connected("one", &all);
    control.expect(control.want(server, present(&domain)), Outcome::Running).await;
    // libvirt removes the port of a tap that a running guest loses.
    let fewer = connected("one", &all[1..]);
    control.expect(control.want(server, present(&fewer)), Outcome::Running).await;
    let off = Domain { power: Power::Off, ..fewer };
    control.expect(control.want(server, present(&off)), Outcome::Stopped).await;
    assert_eq!(unplugged.take(), []);

    let detached = Domain { power: Power::Off, ..connected("one", &all[3..]) };
    control.expect(control.want(server, present(&detached)), Outcome::Stopped).await;
    assert_eq!(unplugged.take(), [(server, vec![second.port])]);
    control.expect(control.want(server, Desired::Absent), Outcome::Absent).await;
    assert_eq!(unplugged.take(), [(server, vec![third.port])]);

    let server = ServerId::new_v4();
    let plain = connected("plain", &[interface(network)]);
    control.expect(control.want(server, present(&plain)), Outcome::Running).await;
    control.expect(control.want(server, Desired::Absent), Outcome::Absent).await;
    assert_eq!(unplugged.take(), [], "the guest has no port in Open vSwitch");

    // A failure does not keep the guest. It is repeated, and further removals wait for it; a guest that is set up again
    // keeps its ports.
    unplugged.fails.store(true, Ordering::SeqCst);
    let servers = [(); 3].map(|()| ServerId::new_v4());
    let domain = connected("one of three", std::slice::from_ref(&first));
    for server in servers {
        control.expect(control.want(server, present(&domain)), Outcome::Running).await;
        control.expect(control.want(server, Desired::Absent), Outcome::Absent).await;
    }
    let all = unplugged.take();
    assert!(all.iter().all(|one| *one == (servers[0], vec![first.port])), "{all:?}");
    control.expect(control.want(servers[2], present(&domain)), Outcome::Running).await;
    unplugged.fails.store(false, Ordering::SeqCst);
    let is_removed = || {
        let removed = unplugged.ports.lock().expect("the lock is not poisoned");
        removed.iter().any(|(server, _)| *server == servers[1])
    };
    let waits = async {
        while !is_removed() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    let limit = std::time::Duration::from_secs(10);
    tokio::time::timeout(limit, waits).await.expect("the removal is repeated");
    let all = unplugged.take();
    assert!(all.iter().all(|(server, _)| *server != servers[2]), "{all:?}");
    stop.send_replace(true);
    task.await.expect("the agent does not panic").expect("the agent stops without an error");
}
