//! The checks of a request before its boot, with upstream's messages.

use kilonova_compute_app::ports::neutron::{ForUser, Resolved, Source, resolve};
use kilonova_compute_app::ports::{NetworkRequest, PortRequest};
use kilonova_testkit::neutron::Failure;
use kilonova_wire::Refusal;
use kilonova_wire::refusal::Kind;
use serde_json::json;

use super::{Cloud, PROJECT};

async fn ask(
    cloud: &Cloud,
    request: &NetworkRequest,
    groups: &[&str],
    counts: (usize, usize),
) -> Result<Resolved, Refusal> {
    let groups: Vec<String> = groups.iter().map(|name| (*name).to_owned()).collect();
    resolve(cloud.user(), cloud.by(), request, &groups, counts).await
}

async fn refused(cloud: &Cloud, request: &NetworkRequest, kind: Kind, words: &str) {
    let refusal = ask(cloud, request, &[], (1, 1)).await.expect_err(words);
    assert_eq!((refusal.kind, refusal.message.as_str()), (kind, words));
}

fn on(network: &str) -> PortRequest {
    PortRequest { network: network.parse().ok(), ..PortRequest::default() }
}

fn with(port: &str) -> PortRequest {
    PortRequest { port: port.parse().ok(), ..PortRequest::default() }
}

#[tokio::test]
async fn the_only_network_is_automatic() {
    let cloud = Cloud::new().await;
    for request in [NetworkRequest::Unspecified, NetworkRequest::Auto] {
        let found = ask(&cloud, &request, &["default"], (1, 3)).await.expect("one network");
        assert_eq!((found.connections.len(), found.servers), (1, 3));
        assert_eq!(found.groups, [], "Neutron adds the default group");
        let Source::New { network, .. } = &found.connections[0].source else {
            panic!("a new port")
        };
        assert_eq!(network.id.to_string(), cloud.network);
    }
    cloud.fake.state().add_network("8", "shared", json!({"shared": true}));
    let words = "Multiple possible networks found, use a Network ID to be more specific.";
    refused(&cloud, &NetworkRequest::Unspecified, Kind::Conflict, words).await;
    let none = ask(&cloud, &NetworkRequest::None, &[], (1, 1)).await.expect("no network");
    assert!(none.connections.is_empty());
}

#[tokio::test]
async fn a_project_without_networks_gets_none_or_neutrons() {
    let mut cloud = Cloud::new().await;
    let project = "88888888888888888888888888888888";
    cloud.context.project_id = project.into();
    let token = kilonova_testkit::neutron::FakeNeutron::member(project);
    cloud.token = http::HeaderValue::from_str(&token).expect("a token");
    let none = ask(&cloud, &NetworkRequest::Unspecified, &[], (1, 1)).await.expect("no network");
    assert!(none.connections.is_empty(), "{none:?}");
    cloud.fake.state().add_network(project, "down", json!({"admin_state_up": false}));
    let words = format!("Unable to automatically allocate a network for project {project}");
    refused(&cloud, &NetworkRequest::Auto, Kind::BadRequest, &words).await;
    cloud.fake.state().set_allocation(false);
    refused(&cloud, &NetworkRequest::Auto, Kind::BadRequest, &words).await;
    cloud.fake.state().set_allocation(true);
    let made = ask(&cloud, &NetworkRequest::Auto, &[], (1, 1)).await.expect("Neutron makes one");
    assert!(matches!(made.connections[0].source, Source::Allocated), "{made:?}");
}

#[tokio::test]
async fn ports_must_be_free_and_have_an_address() {
    let cloud = Cloud::new().await;
    let (free, taken, bare, hidden) = {
        let mut state = cloud.fake.state();
        let lonely = state.add_network(PROJECT, "lonely", json!({}));
        let other = state.add_network("8", "other", json!({}));
        (
            state.add_port(PROJECT, &cloud.network, "normal"),
            state.add_port(PROJECT, &cloud.network, "normal"),
            state.add_port(PROJECT, &lonely, "normal"),
            state.add_port("8", &other, "normal"),
        )
    };
    cloud.fake.state().change_port(&taken, "device_id", json!("a-router"));
    cloud.fake.state().change_port(&bare, "ip_allocation", json!("immediate"));
    let ports = |list: &[&str]| NetworkRequest::Ports(list.iter().map(|id| with(id)).collect());
    let missing = "99999999-2222-3333-4444-555555555555";
    for (request, kind, words) in [
        (ports(&[&taken]), Kind::Conflict, format!("Port {taken} is still in use.")),
        (ports(&[&free, &free]), Kind::Conflict, format!("Port {free} is still in use.")),
        (ports(&[missing]), Kind::BadRequest, format!("Port id {missing} could not be found.")),
        (ports(&[&hidden]), Kind::BadRequest, format!("Port id {hidden} could not be found.")),
        (
            ports(&[&bare]),
            Kind::BadRequest,
            format!("Port {bare} requires a FixedIP in order to be used."),
        ),
    ] {
        refused(&cloud, &request, kind, &words).await;
    }
    cloud.fake.state().change_port(&bare, "ip_allocation", json!("deferred"));
    let found = ask(&cloud, &ports(&[&bare, &free]), &[], (1, 1)).await.expect("both are free");
    let ids: Vec<String> = found
        .connections
        .iter()
        .map(|connection| match &connection.source {
            Source::Existing(port) => port.id.to_string(),
            Source::New { .. } | Source::Allocated => panic!("a new port"),
        })
        .collect();
    assert_eq!(ids, [bare, free.clone()], "in the order of the request");
    let several = ask(&cloud, &ports(&[&free]), &[], (1, 2)).await.expect_err("two servers");
    assert!(several.message.starts_with("Unable to launch multiple instances"), "{several}");
}

#[tokio::test]
async fn a_trusted_function_is_refused() {
    let cloud = Cloud::new().await;
    for (kind, trusted, is_refused) in [
        ("direct", json!(true), true),
        ("direct", json!("True"), true),
        ("accelerator-direct", json!("true"), true),
        ("direct", json!("false"), false),
        ("normal", json!(true), false),
    ] {
        let port = cloud.fake.state().add_port(PROJECT, &cloud.network, kind);
        cloud.fake.state().set_profile(&port, json!({"trusted": trusted}));
        // Only an administrator sees the profile of a port.
        let admin = ForUser { call: cloud.own(), ..cloud.user() };
        let request = NetworkRequest::Ports(vec![with(&port)]);
        let found = resolve(admin, cloud.by(), &request, &[], (1, 1)).await;
        let words = format!(
            "Port {port} has trusted=true in its binding:profile, but trusted virtual functions are \
             not supported."
        );
        assert_eq!(found.is_err(), is_refused, "{kind} {trusted}");
        if let Err(refusal) = found {
            assert_eq!((refusal.kind, refusal.message), (Kind::BadRequest, words));
        }
    }
}

#[tokio::test]
async fn networks_must_be_visible_and_have_subnets() {
    let cloud = Cloud::new().await;
    let (lonely, hidden, outside, port) = {
        let mut state = cloud.fake.state();
        let outside = state.add_network("8", "outside", json!({"router:external": true}));
        state.add_subnet(&outside, "203.0.113.0/28");
        (
            state.add_network(PROJECT, "lonely", json!({})),
            state.add_network("8", "hidden", json!({})),
            outside,
            state.add_port(PROJECT, &cloud.network, "normal"),
        )
    };
    let nets = |list: &[&str]| NetworkRequest::Ports(list.iter().map(|id| on(id)).collect());
    for (request, kind, words) in [
        (
            nets(&[&cloud.network, &hidden]),
            Kind::BadRequest,
            format!("Network {hidden} could not be found."),
        ),
        (
            nets(&[&lonely]),
            Kind::BadRequest,
            format!("Network {lonely} requires a subnet in order to boot instances on."),
        ),
        (
            nets(&[&outside]),
            Kind::Forbidden,
            format!("It is not allowed to create an interface on external network {outside}"),
        ),
    ] {
        refused(&cloud, &request, kind, &words).await;
    }
    let address = cloud.fake.state().port(&port)["fixed_ips"][0]["ip_address"].clone();
    let address = address.as_str().expect("an address");
    cloud.fake.state().change_port(&port, "device_id", json!("the-server"));
    let at = PortRequest { fixed_ip: address.parse().ok(), ..on(&cloud.network) };
    let words = format!("Fixed IP address {address} is already in use on instance the-server.");
    refused(&cloud, &NetworkRequest::Ports(vec![at.clone()]), Kind::BadRequest, &words).await;
    let several = NetworkRequest::Ports(vec![at]);
    let several = ask(&cloud, &several, &[], (1, 2)).await.expect_err("two servers");
    assert!(several.message.contains("max_count cannot be greater than 1"), "{several}");
    let twice = ask(&cloud, &nets(&[&cloud.network, &cloud.network]), &[], (1, 1)).await;
    assert_eq!(twice.expect("two ports on one network").connections.len(), 2);
}

#[tokio::test]
async fn the_quota_limits_the_number_of_servers() {
    let cloud = Cloud::new().await;
    cloud.fake.state().add_port(PROJECT, &cloud.network, "normal");
    cloud.fake.state().set_port_quota(PROJECT, 6);
    let two = NetworkRequest::Ports(vec![on(&cloud.network), on(&cloud.network)]);
    let found = ask(&cloud, &two, &[], (1, 9)).await.expect("there is room for two");
    assert_eq!(found.servers, 2);
    let refusal = ask(&cloud, &two, &[], (3, 9)).await.expect_err("not for three");
    assert_eq!(
        (refusal.kind, &*refusal.message),
        (Kind::Forbidden, "Maximum number of ports exceeded")
    );
    cloud.fake.state().set_port_quota(PROJECT, 0);
    let words = "The number of defined ports: 1 is over the limit: 0";
    refused(&cloud, &two, Kind::Forbidden, words).await;
}

#[tokio::test]
async fn groups_are_found_by_id_and_by_name() {
    let cloud = Cloud::new().await;
    let (web, twin) = {
        let mut state = cloud.fake.state();
        state.add_group(PROJECT, "twin", false);
        (state.add_group(PROJECT, "web", false), state.add_group(PROJECT, "twin", false))
    };
    let request = NetworkRequest::Auto;
    let found = ask(&cloud, &request, &["web", &web, &twin, "default"], (1, 1)).await;
    let found: Vec<String> =
        found.expect("they exist").groups.iter().map(ToString::to_string).collect();
    assert_eq!(found, [web, twin]);
    for (name, kind, words) in [
        ("none", Kind::BadRequest, "Unable to find security_group with name or id 'none'"),
        (
            "twin",
            Kind::Conflict,
            "Multiple security_group matches found for name 'twin', use an ID to be more specific.",
        ),
    ] {
        let refusal = ask(&cloud, &request, &[name], (1, 1)).await.expect_err(words);
        assert_eq!((refusal.kind, refusal.message.as_str()), (kind, words));
    }
}

#[tokio::test]
async fn a_neutron_that_fails_is_unavailable() {
    let cloud = Cloud::new().await;
    let request = NetworkRequest::Ports(vec![on(&cloud.network)]);
    for (what, failure) in [
        ("GET /networks", Failure::Status(500)),
        ("GET /quotas", Failure::Lost),
        ("GET /networks", Failure::AnswerLost),
    ] {
        cloud.fake.fail(what, failure, 1);
        let refusal = ask(&cloud, &request, &[], (1, 1)).await.expect_err("Neutron fails");
        assert_eq!((refusal.kind, refusal.retry_after), (Kind::Unavailable, Some(1)), "{refusal}");
    }
    ask(&cloud, &request, &[], (1, 1)).await.expect("Neutron is back");
}
