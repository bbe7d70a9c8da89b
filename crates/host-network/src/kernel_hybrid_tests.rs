//! A host with its own Open vSwitch: a guest with a hybrid plug reaches the switch's other ports.

use std::path::{Path, PathBuf};

use kilonova_node_api::Vif;

use super::*;

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

#[test]
fn a_guest_reaches_open_vswitch_by_a_bridge_of_its_own() {
    for program in ["ovs-vsctl", "ovsdb-server", "ovs-vswitchd", "ovsdb-tool"] {
        if Command::new(program).arg("--version").output().is_err() {
            kilonova_testkit::skip(format!("{program} is not on this machine"));
            return;
        }
    }
    outside("hybrid");
}

/// The processes of an Open vSwitch, in a directory of their own.
struct Switch {
    folder: PathBuf,
    processes: Vec<Child>,
}

impl Drop for Switch {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Switch {
    /// Starts an Open vSwitch with the bridge `br-int` in userspace, because the kernel may lack its module.
    fn start(folder: &Path) -> Self {
        let mut all = Self { folder: folder.to_owned(), processes: Vec::new() };
        let (database, socket) = (folder.join("conf.db"), folder.join("db.sock"));
        let (database, socket) = (database.display(), socket.display());
        all.run("ovsdb-tool", &["create", &database.to_string(), SCHEMA]);
        all.spawn("ovsdb-server", &[&database.to_string(), &format!("--remote=punix:{socket}")]);
        assert!(patiently(|| Path::new(&socket.to_string()).exists()), "the database listens");
        all.run("ovs-vsctl", &["--no-wait", "init"]);
        all.spawn("ovs-vswitchd", &[&format!("unix:{socket}")]);
        let bridge = ["--timeout=60", "add-br", "br-int", "--", "set", "Bridge", "br-int"];
        all.run("ovs-vsctl", &[&bridge[..], &["datapath_type=netdev"]].concat());
        all
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        for name in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"] {
            command.env(name, &self.folder);
        }
        command.args(arguments);
        command
    }

    fn spawn(&mut self, program: &str, arguments: &[&str]) {
        let log = std::fs::File::create(self.folder.join(format!("{program}.log")));
        let log = log.expect("the file is created");
        let process = self.command(program, arguments).stderr(log).spawn();
        self.processes.push(process.expect("the program starts"));
    }

    fn run(&self, program: &str, arguments: &[&str]) -> String {
        let done = self.command(program, arguments).output().expect("the program runs");
        let complaint = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{program} {arguments:?}: {complaint}");
        String::from_utf8_lossy(&done.stdout).trim().to_owned()
    }

    fn ports(&self) -> Vec<String> {
        self.run("ovs-vsctl", &["list-ports", "br-int"]).lines().map(str::to_owned).collect()
    }
}

/// True if the address `to` answers ARP requests from the namespace. (UDP would need checksums, which a veth pair
/// leaves to hardware and a userspace switch does not compute.)
fn sees(space: &Space, from: &str, to: &str) -> bool {
    let pid = space.pid();
    let net = format!("--net=/proc/{pid}/ns/net");
    space.ip("neigh flush all");
    patiently(|| {
        let mut asked = space.run(&format!("{from} {to}"));
        let _ = asked.stdout(Stdio::null()).stderr(Stdio::null()).status();
        let line = [&*net, "--", "ip", "-json", "neigh", "show", "to", to];
        let shown = Command::new("nsenter").args(line).output().expect("the program runs");
        String::from_utf8_lossy(&shown.stdout).contains("lladdr")
    })
}

/// The host. Commands find the switch through the environment of this process, which therefore starts itself again
/// in the same role with the switch's directory in its environment.
pub(super) async fn host() {
    let Some(folder) = std::env::var_os("KILONOVA_TEST_SWITCH") else {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let mut command = again("hybrid", &["env"]);
        command.env("OVS_RUNDIR", folder.path()).env("KILONOVA_TEST_SWITCH", folder.path());
        let status = command.status().expect("the program runs");
        assert!(status.success(), "with a switch: {status}");
        return;
    };
    let switch = Switch::start(Path::new(&folder));
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let config = HostNetworkConfig { folder: folder.path().join("network"), ..config() };
    let network = HostNetwork::new(config.clone());
    let far = Space::new();
    ip("link set dev lo up");
    ip(&format!("link add name far type veth peer name eth0 netns {}", far.pid()));
    ip("link set dev far up");
    switch.run("ovs-vsctl", &["--timeout=60", "add-port", "br-int", "far"]);
    far.ip("link set dev eth0 up");
    far.ip("address add 10.0.0.1/24 dev eth0");
    // A network of an external Neutron without a physical network, for which the host needs no bridge of its own.
    let plugged = |bridge: &str| Interface {
        physical_network: String::new(),
        network_type: "vxlan".into(),
        vif: Some(Vif::OvsHybrid { bridge: bridge.into() }),
        ..interface(2)
    };
    let one = plugged("br-int");
    let (_, outer) = one.hybrid_pair();
    let with = |interface: &Interface| wanted(vec![interface.clone()], Filters::default());

    let lacking = network.make(&with(&plugged("br-none"))).await;
    let why = lacking.of(std::slice::from_ref(&one)).expect("there is no such bridge");
    assert!(why.contains("br-none"), "{why}");

    assert_eq!(network.make(&with(&one)).await, NetworkFailures::default());
    let a = guest(&one);
    ip(&format!("link set dev {} master {}", one.tap(), one.hybrid_bridge()));
    a.ip("address add 10.0.0.2/24 dev eth0");
    assert!(sees(&a, "10.0.0.2", "10.0.0.1"), "the guest reaches the switch");
    assert!(sees(&far, "10.0.0.1", "10.0.0.2"), "the switch reaches the guest");
    let id = |key: &str| {
        let key = format!("external_ids:{key}");
        switch.run("ovs-vsctl", &["get", "Interface", &outer, &key]).replace('"', "")
    };
    assert_eq!(id("iface-id"), one.port.to_string());
    assert_eq!(id("attached-mac"), one.mac);
    assert_eq!(id("vm-uuid"), "00000000-0000-4000-8000-000000000000");
    assert_eq!(id("iface-status"), "active");

    // A new process finds the desired state and changes nothing.
    let number = || switch.run("ovs-vsctl", &["get", "Interface", &outer, "ofport"]);
    let before = number();
    let next = HostNetwork::new(config.clone());
    assert_eq!(next.make(&with(&one)).await, NetworkFailures::default());
    assert_eq!(number(), before, "the port stays");

    // A plug that has lost its links is repaired.
    ip(&format!("link delete dev {outer}"));
    assert_eq!(next.make(&with(&one)).await, NetworkFailures::default());
    assert!(sees(&a, "10.0.0.2", "10.0.0.1"), "the plug is repaired");

    // The plug of a running guest stays; without the guest it is removed.
    let none = wanted(Vec::new(), Filters::default());
    assert_eq!(next.make(&none).await, NetworkFailures::default());
    assert!(switch.ports().contains(&outer), "the guest runs");
    assert!(sees(&a, "10.0.0.2", "10.0.0.1"));
    drop(a);
    assert!(patiently(|| !tap_is_there(&one)), "a stopped guest removes its tap");
    assert_eq!(next.make(&none).await, NetworkFailures::default());
    assert_eq!(switch.ports(), ["far"], "a foreign port stays");
    let left = links::read().await.expect("the links are listed");
    assert_eq!(left.values().filter(|link| link.is_ours()).count(), 0, "{left:?}");

    // A port whose links are gone, as after a reboot, is removed at the next start of the agent.
    assert_eq!(next.make(&with(&one)).await, NetworkFailures::default());
    ip(&format!("link delete dev {outer}"));
    ip(&format!("link delete dev {}", one.hybrid_bridge()));
    assert!(switch.ports().contains(&outer));
    assert_eq!(HostNetwork::new(config.clone()).make(&none).await, NetworkFailures::default());
    assert_eq!(switch.ports(), ["far"]);

    // A loss of power leaves the ports that libvirt creates. The tap of another guest stays, also under the name of the
    // port that it has by now.
    let [server, other] = ["11111111", "22222222"].map(|first| {
        let id = format!("{first}-0000-4000-8000-000000000000");
        id.parse().expect("the value is a UUID")
    });
    let native =
        |number| Interface { vif: Some(Vif::Ovs { bridge: "br-int".into() }), ..interface(number) };
    let left = |one: &Interface, server: ServerId| {
        let (name, id) = (one.tap(), format!("external_ids:vm-id=\"{server}\""));
        let add = ["--no-wait", "add-port", "br-int", &name, "--", "set", "Interface", &name, &id];
        switch.run("ovs-vsctl", &add);
    };
    let (first, second, third) = (native(5), native(6), native(7));
    left(&first, server);
    left(&second, other);
    left(&third, server);
    let network = HostNetwork::new(config);
    let both = [first.clone(), second.clone(), interface(8)];
    assert_eq!(network.unplug(server, &both).await, Ok(()));
    assert_eq!(switch.ports(), ["far".to_owned(), second.tap(), third.tap()]);
    assert_eq!(network.unplug(server, &both).await, Ok(()), "nothing is left of them");
    assert_eq!(network.unplug(server, &[third]).await, Ok(()));
    assert_eq!(network.unplug(other, &[second]).await, Ok(()));
    assert_eq!(switch.ports(), ["far"]);

    // Without the database, the removal ends with the reason.
    drop(switch);
    let why = network.unplug(server, &[first]).await.expect_err("the database is gone");
    assert!(why.contains("db.sock"), "{why}");
}
