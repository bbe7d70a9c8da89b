//! Tests of dnsmasq's configuration.

use kilonova_node_api::Filters;

use super::*;
use crate::nets::Nets;
use crate::testing::{config, interface, network, wanted};

#[test]
fn only_listed_guests_get_addresses() {
    let mut bare = interface(3);
    bare.addresses[0].dhcp = false;
    let mut other = interface(4);
    let second = kilonova_node_api::Address {
        address: "10.1.0.4".parse().expect("the address is valid"),
        gateway: None,
        dns: Vec::new(),
        routes: Vec::new(),
        dhcp_server: Some("10.1.0.254".parse().expect("the address is valid")),
        ..other.addresses[0].clone()
    };
    other.addresses = vec![second];
    let wanted = wanted(vec![interface(2), bare, other], Filters::default());
    let nets = Nets::of(&wanted, &config());
    let net = &nets.all[&network(1)];
    assert_eq!(hosts(net), "fa:16:3e:00:00:02,10.0.0.2\nfa:16:3e:00:00:04,10.1.0.4\n");
    assert_eq!(
        options(net),
        "tag:subnet-10-0-0-0,option:router,10.0.0.1\n\
         tag:subnet-10-0-0-0,option:dns-server,10.0.0.53,10.0.0.54\n\
         tag:subnet-10-0-0-0,option:mtu,1450\n\
         tag:subnet-10-0-0-0,option:classless-static-route,192.168.7.0/24,10.0.0.9,169.254.169.254/32,10.0.0.254,0.0.0.0/0,10.0.0.1\n\
         tag:subnet-10-0-0-0,249,192.168.7.0/24,10.0.0.9,169.254.169.254/32,10.0.0.254,0.0.0.0/0,10.0.0.1\n\
         tag:subnet-10-1-0-0,option:router\n\
         tag:subnet-10-1-0-0,option:dns-server\n\
         tag:subnet-10-1-0-0,option:mtu,1450\n\
         tag:subnet-10-1-0-0,option:classless-static-route,169.254.169.254/32,10.1.0.254\n\
         tag:subnet-10-1-0-0,249,169.254.169.254/32,10.1.0.254\n"
    );
    let line = arguments(Path::new("/run/x"), net.dhcp.as_ref());
    assert!(line.contains(&"--conf-file=/dev/null".to_owned()));
    assert!(line.contains(&"--pid-file=/run/x/pid".to_owned()));
    let ranges: Vec<&str> =
        line.iter().filter_map(|word| word.strip_prefix("--dhcp-range=")).collect();
    assert_eq!(
        ranges,
        [
            "set:subnet-10-0-0-0,10.0.0.0,static,255.255.255.0,86400s",
            "set:subnet-10-1-0-0,10.1.0.0,static,255.255.255.0,86400s"
        ]
    );
}

#[test]
fn ipv6_addresses_are_assigned_where_their_subnet_wants_it() {
    use kilonova_node_api::{Address, SixMode};
    let address = |text: &str, six: Option<SixMode>| Address {
        address: text.parse().expect("the address is valid"),
        prefix: 64,
        gateway: None,
        dns: vec!["fd00::53".parse().expect("the address is valid")],
        routes: Vec::new(),
        dhcp: true,
        dhcp_server: Some("fd00::ffff".parse().expect("the address is valid")),
        six,
        floating: Vec::new(),
    };
    let (mut two, mut three) = (interface(2), interface(3));
    two.addresses.push(address("fd00:1::2", Some(SixMode::Stateful)));
    two.addresses.push(address("fd00:2::2", Some(SixMode::Stateless)));
    three.addresses = vec![
        address("fd00:1::3", Some(SixMode::Stateful)),
        address("fd00:3::3", Some(SixMode::Slaac)),
        address("fd00:4::3", None),
    ];
    let wanted = wanted(vec![two, three], Filters::default());
    let nets = Nets::of(&wanted, &config());
    let net = &nets.all[&network(1)];
    assert_eq!(
        hosts(net),
        "fa:16:3e:00:00:02,10.0.0.2,[fd00:1::2]\nfa:16:3e:00:00:03,[fd00:1::3]\n"
    );
    let options = options(net);
    assert!(
        options.ends_with(
            "tag:subnet-fd00-1--,option6:dns-server,[fd00::53]\n\
             tag:subnet-fd00-2--,option6:dns-server,[fd00::53]\n"
        ),
        "{options}"
    );
    let line = arguments(Path::new("/run/x"), net.dhcp.as_ref());
    let ranges: Vec<&str> =
        line.iter().filter_map(|word| word.strip_prefix("--dhcp-range=set:subnet-fd00-")).collect();
    assert_eq!(ranges, ["1--,fd00:1::,static,64,86400s", "2--,fd00:2::,static,64,86400s"]);
}
