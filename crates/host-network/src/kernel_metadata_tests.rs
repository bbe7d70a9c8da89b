//! The metadata service in real namespaces: the identity that it gives each guest, and the abuse that it withstands.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, SocketAddrV6, TcpStream};
use std::process::Output;
use std::sync::Arc;

use kilonova_guest_metadata::ContentType;
use kilonova_node::{
    DesiredNetworks, GuestAnswer, GuestFuture, GuestMethod, GuestRequest, GuestRequests,
    GuestStatus,
};
use rustix::net::{AddressFamily, SocketType, bind, connect, netdevice, socket};

use super::*;
use crate::testing::network as id;

const FOUR: &str = "169.254.169.254";
const SIX: &str = "fe80::a9fe:a9fe";

#[test]
fn guests_ask_as_themselves() {
    outside("metadata");
}

/// Answers every request with a description of that request.
struct Mirror;

impl GuestRequests for Mirror {
    fn answer(&self, request: GuestRequest) -> GuestFuture<'_> {
        Box::pin(async move {
            let GuestRequest { network, from, method, path } = request;
            let method = match method {
                GuestMethod::Get => "GET".to_owned(),
                GuestMethod::Post(body) => format!("POST {:?}", body.map(|body| body.len())),
                GuestMethod::Other => "other".to_owned(),
            };
            let body = format!("{method} {path} of {from} on {network}.").into_bytes();
            GuestAnswer { status: GuestStatus::Found, kind: ContentType::Text, body }
        })
    }
}

/// Sets up the networks. Where the kernel lacks connection tracking on bridges, loads only the rules that
/// do not need it.
async fn make(network: &HostNetwork, wanted: &DesiredNetworks) {
    let failures = network.make(wanted).await;
    let Some(why) = &failures.all else {
        assert_eq!(failures, NetworkFailures::default());
        return;
    };
    assert!(why.contains("nf_conntrack_bridge"), "{why}");
    let nets = Nets::of(wanted, &network.config);
    let text = rules::table(&nets, &wanted.filters).expect("the text is UTF-8");
    let tracked = |line: &&str| line.contains("ct state") || line.contains("ct zone");
    let text: String =
        text.lines().filter(|line| !tracked(line)).map(|line| format!("{line}\n")).collect();
    let whole = format!("table bridge kilonova\ndelete table bridge kilonova\n{text}");
    run::run("nft", &words(&["-f", "-"]), whole.as_bytes()).await.expect("the rules are loaded");
    let mut failures = NetworkFailures::default();
    network.links(&nets, &mut true, &mut failures).await.expect("the links are listed");
    assert_eq!(network.answer(&nets, &mut failures).await, BTreeMap::new());
    assert_eq!(failures, NetworkFailures::default());
}

impl Space {
    fn http(&self, line: &str) -> Output {
        self.run(&format!("http {line}")).output().expect("the program runs")
    }

    /// The answer to a request from an address (`-`: any).
    fn asks(&self, from: &str, to: &str) -> Option<String> {
        let done = self.http(&format!("{from} {to} get"));
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        let answer = text.lines().find_map(|line| Some(line.split_once("answer: ")?.1.to_owned()));
        answer.filter(|_| done.status.success())
    }

    /// True if the service withstands a kind of abuse.
    fn withstood(&self, abuse: &str) -> bool {
        let done = self.http(&format!("- {FOUR} {abuse}"));
        let good = done.status.success();
        if !good {
            println!("{}", String::from_utf8_lossy(&done.stderr));
        }
        good
    }
}

fn answer(from: &str, network: u8) -> Option<String> {
    Some(format!("GET /openstack of {from} on {}.", id(network)))
}

pub(super) async fn host() {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))
        .expect("the file attributes are set");
    let mut config = HostNetworkConfig { folder: folder.path().join("network"), ..config() };
    config.uplinks.insert("physnet2".into(), Uplink::Interface("up1".into()));
    let network = HostNetwork::new(config.clone());
    network.serve_metadata(Arc::new(Mirror));
    ip("link set dev lo up");
    let (far, _other) = (Space::new(), Space::new());
    for (name, space) in [("up0", &far), ("up1", &_other)] {
        ip(&format!("link add name {name} type veth peer name eth0 netns {}", space.pid()));
        space.ip("link set dev eth0 up");
    }
    far.ip("address add 10.0.0.1/24 dev eth0");
    // The first guest has no security group, the second no port security, and the third has the first
    // one's address on a network without DHCP.
    let (two, three) = (interface(2), interface(3));
    let mut again = interface(4);
    again.network = id(2);
    again.physical_network = "physnet2".into();
    again.addresses[0].address = two.addresses[0].address;
    (again.addresses[0].dhcp, again.dhcp_mac) = (false, None);
    let mut settings = filters(&[2, 3, 4]);
    settings.ports[0].groups.clear();
    settings.ports[1].secure = false;
    let (a, b, c) = (guest(&two), guest(&three), guest(&again));
    let all = wanted(vec![two.clone(), three.clone(), again.clone()], settings);
    make(&network, &all).await;
    for (space, last) in [(&a, 2), (&b, 3), (&c, 2)] {
        space.ip(&format!("address add 10.0.0.{last}/24 dev eth0"));
        space.ip(&format!("route add {FOUR}/32 dev eth0"));
    }

    assert_eq!(a.asks("-", FOUR), answer("10.0.0.2", 1));
    assert_eq!(b.asks("-", FOUR), answer("10.0.0.3", 1), "port security is not needed");
    assert_eq!(c.asks("-", FOUR), answer("10.0.0.2", 2), "the same address on another network");
    a.ip(&format!("route replace {FOUR}/32 via 10.0.0.254"));
    assert_eq!(a.asks("-", FOUR), answer("10.0.0.2", 1), "by the route that DHCP announces");
    if crate::metadata::has_six() {
        // The guest's own address is tentative at first.
        assert!(patiently(|| a.asks("-", SIX) == answer("fe80::f816:3eff:fe00:2", 1)));
        assert!(patiently(|| c.asks("-", SIX) == answer("fe80::f816:3eff:fe00:4", 2)));
    }

    // A guest without port security takes another guest's address, first with its own MAC address, then
    // with the other guest's.
    b.ip("address add 10.0.0.2/24 dev eth0");
    assert_eq!(b.asks("10.0.0.2", FOUR), None, "a forged address");
    assert_eq!(b.asks("10.0.0.3", FOUR), answer("10.0.0.3", 1));
    b.ip("link set dev eth0 address fa:16:3e:00:00:02");
    assert_eq!(b.asks("10.0.0.2", FOUR), None, "forged addresses of both kinds");
    b.ip("link set dev eth0 address fa:16:3e:00:00:03");
    b.ip("address delete 10.0.0.2/24 dev eth0");
    assert!(patiently(|| a.asks("-", FOUR) == answer("10.0.0.2", 1)));
    // Nor can it impersonate the service.
    b.ip(&format!("address add {FOUR}/32 dev eth0"));
    b.ip("link set dev eth0 arp off");
    b.ip("link set dev eth0 arp on");
    a.ip(&format!("route replace {FOUR}/32 dev eth0"));
    a.ip("neigh flush all");
    assert_eq!(a.asks("-", FOUR), answer("10.0.0.2", 1), "another guest has the address");
    b.ip(&format!("address delete {FOUR}/32 dev eth0"));
    assert_eq!(b.asks("-", FOUR), answer("10.0.0.3", 1));
    far.ip(&format!("route add {FOUR}/32 dev eth0"));
    assert_eq!(far.asks("-", FOUR), None, "no answer outside the host");

    for abuse in ["idle", "slow", "head", "headers", "body", "nonsense", "many"] {
        assert!(a.withstood(abuse), "{abuse}");
        assert_eq!(b.asks("-", FOUR), answer("10.0.0.3", 1), "after {abuse} of another guest");
    }
    let greedy = a.run(&format!("http - {FOUR} hold")).stdout(Stdio::piped()).spawn();
    let mut greedy = greedy.expect("the program starts");
    let mut output = greedy.stdout.take().expect("its output is piped");
    let mut line = Vec::new();
    while !line.ends_with(b"held\n") {
        let mut byte = [0];
        output.read_exact(&mut byte).expect("it reports its open connections");
        line.push(byte[0]);
    }
    assert_eq!(
        b.asks("-", FOUR),
        answer("10.0.0.3", 1),
        "while another guest uses all its connections"
    );
    let _ = greedy.kill();
    let _ = greedy.wait();

    // The agent restarts, and a lost namespace is recreated.
    drop(network);
    let network = HostNetwork::new(config.clone());
    network.serve_metadata(Arc::new(Mirror));
    network.resume(&all).await;
    assert!(patiently(|| a.asks("-", FOUR) == answer("10.0.0.2", 1)), "before it has documents");
    make(&network, &all).await;
    assert_eq!(a.asks("-", FOUR), answer("10.0.0.2", 1));
    let pid = config.folder.join(two.network.to_string()).join("pid");
    let pid = std::fs::read_to_string(&pid).expect("the file is read");
    end_process(pid.trim().parse().expect("the value is valid"));
    make(&network, &all).await;
    assert!(patiently(|| a.asks("-", FOUR) == answer("10.0.0.2", 1)));
    if crate::metadata::has_six() {
        assert_eq!(a.asks("-", SIX), answer("fe80::f816:3eff:fe00:2", 1));
    }
    assert_eq!(c.asks("-", FOUR), answer("10.0.0.2", 2));

    drop(network);
    let network = HostNetwork::new(HostNetworkConfig { metadata: false, ..config });
    network.serve_metadata(Arc::new(Mirror));
    make(&network, &all).await;
    assert_eq!(a.asks("-", FOUR), None, "the service is off");
}

/// A connection to the service: `http FROM TO WHAT`.
fn connection(from: &str, to: &str) -> std::io::Result<TcpStream> {
    let to: IpAddr = to.parse().expect("the address is valid");
    let (family, to): (_, SocketAddr) = match to {
        IpAddr::V4(_) => (AddressFamily::INET, (to, 80).into()),
        IpAddr::V6(six) => {
            let probe = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
            let link = netdevice::name_to_index(&probe, "eth0")?;
            (AddressFamily::INET6, SocketAddrV6::new(six, 80, 0, link).into())
        }
    };
    let stream = TcpStream::from(socket(family, SocketType::STREAM, None)?);
    // The kernel applies this timeout to the handshake too.
    stream.set_write_timeout(Some(Duration::from_secs(1)))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    if from != "-" {
        let from: IpAddr = from.parse().expect("the address is valid");
        bind(&stream, &SocketAddr::from((from, 0)))?;
    }
    connect(&stream, &to)?;
    Ok(stream)
}

const GET: &str = "GET /openstack HTTP/1.1\r\nHost: metadata\r\nConnection: close\r\n\r\n";

pub(super) fn ask(role: &str) {
    let words: Vec<&str> = role.split(' ').collect();
    let [_, from, to, what] = words[..] else { panic!("{role}") };
    let connect = || connection(from, to).expect("the service accepts");
    let read = |mut stream: &TcpStream| {
        let mut text = String::new();
        // A closed connection may be reset.
        let _ = stream.read_to_string(&mut text);
        text
    };
    let send = |bytes: &[u8]| {
        let mut stream = connect();
        let _ = stream.write_all(bytes);
        read(&stream)
    };
    match what {
        "get" => {
            let text = send(GET.as_bytes());
            assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
            println!("answer: {}", text.split("\r\n\r\n").nth(1).expect("it has a body"));
        }
        // A connection without a request and one with an endless request are both closed.
        "idle" => assert_eq!(read(&connect()), ""),
        "slow" => {
            let (mut stream, begun) = (connect(), Instant::now());
            for byte in GET.as_bytes().iter().cycle().take(400) {
                if *byte == b'\n' || stream.write_all(&[*byte]).is_err() {
                    continue;
                }
                std::thread::sleep(Duration::from_millis(50));
                if begun.elapsed() > Duration::from_secs(8) {
                    break;
                }
            }
            stream.set_read_timeout(Some(Duration::from_secs(8))).expect("the value is set");
            let mut rest = Vec::new();
            let ended = stream.read_to_end(&mut rest);
            assert!(
                !matches!(&ended, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
            );
        }
        "head" => {
            let text = send(format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(100_000)).as_bytes());
            assert!(!text.contains("200 OK"), "{text}");
        }
        "headers" => {
            let text =
                send(format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(5000)).as_bytes());
            assert!(!text.contains("200 OK"), "{text}");
        }
        "body" => {
            let head =
                "POST /password HTTP/1.1\r\nConnection: close\r\nContent-Length: 1000000\r\n\r\n";
            let text = send([head.as_bytes(), &[b'x'; 1_000_000]].concat().as_slice());
            assert!(text.is_empty() || text.contains("POST None"), "{text}");
            let head =
                "POST /password HTTP/1.1\r\nConnection: close\r\nContent-Length: 1020\r\n\r\n";
            let text = send([head.as_bytes(), &[b'x'; 1020]].concat().as_slice());
            assert!(text.contains("POST Some(1020)"), "{text}");
        }
        "nonsense" => {
            let text = send(&[0x16, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3, b'\n', b'\n']);
            assert!(!text.contains("200 OK"), "{text}");
        }
        // Eight concurrent connections; the ninth is closed.
        "many" => {
            let mut all: Vec<TcpStream> = (0..8).map(|_| connect()).collect();
            for stream in &mut all {
                stream.write_all(&GET.as_bytes()[..10]).expect("it is open");
            }
            let ninth = connection(from, to).map(|stream| read(&stream)).unwrap_or_default();
            assert_eq!(ninth, "");
            for stream in &mut all {
                stream.write_all(&GET.as_bytes()[10..]).expect("it is open");
                assert!(read(stream).contains("200 OK"), "the first eight are served");
            }
        }
        "hold" => {
            let all: Vec<TcpStream> = (0..8).map(|_| connect()).collect();
            println!("held");
            std::thread::sleep(Duration::from_secs(600));
            drop(all);
        }
        other => panic!("{other}"),
    }
}
