//! Tests of each function of the client, of its errors, and of failures of Neutron.

use std::time::{Duration, Instant};

use http::StatusCode;
use kilonova_ids::{NetworkId, PortId};
use kilonova_keystone::Caller;
use kilonova_neutron::{
    BindingStatus, Error, Extension, GroupFilter, NetworkFilter, Neutron, NewBinding, NewPort,
    Port, PortChange, PortFilter, Profile, RequestedIp, Type, released,
};
use kilonova_testkit::neutron::{Failure, FakeNeutron};
use kilonova_wire::IntoRefusal;
use kilonova_wire::refusal::Kind;
use newtype_uuid::GenericUuid as _;
use serde_json::{Value, json};

use super::{by, member, neutron, own, service};

const PROJECT: &str = "77777777777777777777777777777777";
const SERVER: &str = "11111111-2222-3333-4444-555555555555";

/// A fake with `host1`, `host2` and a network of the project.
async fn cloud() -> (FakeNeutron, Neutron, NetworkId) {
    let fake = FakeNeutron::start().await;
    let network = {
        let mut state = fake.state();
        state.add_agent("host1");
        state.add_agent("host2");
        let network = state.add_network(PROJECT, "net", json!({}));
        state.add_subnet(&network, "10.99.0.0/28");
        network
    };
    let neutron = neutron(&fake);
    (fake, neutron, network.parse().expect("an id"))
}

fn new_port(network: NetworkId) -> NewPort {
    NewPort {
        device_id: SERVER.into(),
        network_id: network,
        admin_state_up: true,
        project: PROJECT.into(),
        security_groups: Vec::new(),
        fixed_ips: Vec::new(),
    }
}

fn profile(value: Value) -> Profile {
    value.as_object().expect("an object").clone()
}

async fn created(neutron: &Neutron, network: NetworkId) -> Port {
    let member = member(PROJECT);
    neutron.create_port(by(&member), &new_port(network)).await.expect("the port is created")
}

#[tokio::test]
async fn a_port_goes_through_its_life() {
    let (fake, neutron, network) = cloud().await;
    let port = created(&neutron, network).await;
    assert_eq!((port.device_id.as_str(), port.host.as_str()), (SERVER, ""));
    assert_eq!(port.fixed_ips[0].ip_address.to_string(), "10.99.0.2");
    assert!(!port.is_active(), "{port:?}");
    let bound = PortChange {
        device_owner: Some("compute:nova".into()),
        host: Some(Some("host1".into())),
        profile: Some(profile(json!({"pci_slot": "0000:81:00.2", "capabilities": ["switchdev"]}))),
        ..PortChange::default()
    };
    let bound = neutron.update_port(own(), port.id, &bound).await.expect("the port is bound");
    assert_eq!((bound.vif_type.as_str(), bound.host.as_str()), ("ovs", "host1"));
    assert_eq!(bound.vif_details["bridge_name"], "br-int");
    fake.state().set_status(&port.id.to_string(), "ACTIVE");
    let listed = neutron.ports(own(), PortFilter::Device(SERVER), &[]).await.expect("a list");
    assert_eq!(listed.len(), 1);
    assert!(listed[0].is_active(), "{listed:?}");
    let unbound = PortChange {
        device_id: Some(String::new()),
        device_owner: Some(String::new()),
        host: Some(None),
        profile: Some(released(&listed[0].profile)),
        ..PortChange::default()
    };
    let free = neutron.update_port(own(), port.id, &unbound).await.expect("the port is free");
    assert_eq!((free.vif_type.as_str(), free.host.as_str()), ("unbound", ""));
    assert_eq!(free.profile, profile(json!({"capabilities": ["switchdev"]})));
    neutron.delete_port(own(), port.id).await.expect("the port is deleted");
    let gone = neutron.delete_port(own(), port.id).await.expect_err("it does not exist");
    assert!(gone.is_not_found(), "{gone}");
    assert_eq!(gone.kind(), Some(Type::PortNotFound));
    assert!(!gone.may_have_effect());
}

#[tokio::test]
async fn the_refusals_of_ports_have_types() {
    let (fake, neutron, network) = cloud().await;
    let member = member(PROJECT);
    let at = |address: &str| {
        let ip_address = address.parse().expect("an address");
        NewPort { fixed_ips: vec![RequestedIp { ip_address }], ..new_port(network) }
    };
    created(&neutron, network).await;
    for (port, kind) in [
        (at("192.0.2.1"), Type::InvalidIpForNetwork),
        (at("10.99.0.2"), Type::IpAddressAlreadyAllocated),
        (new_port(SERVER.parse().expect("an id")), Type::NetworkNotFound),
    ] {
        let refused = neutron.create_port(by(&member), &port).await.expect_err("it is refused");
        assert_eq!(refused.kind(), Some(kind), "{refused}");
    }
    fake.state().set_port_quota(PROJECT, 1);
    let full = neutron.create_port(by(&member), &new_port(network)).await.expect_err("it is full");
    assert_eq!(full.kind(), Some(Type::OverQuota), "{full}");
    let quota = neutron.port_quota(by(&member), PROJECT).await.expect("a quota");
    assert_eq!(quota, Some(1));
    let unlimited = neutron.port_quota(own(), "8").await.expect("a quota");
    assert_eq!(unlimited, None);
    fake.state().set_port_quota(PROJECT, -1);
    while neutron.create_port(by(&member), &new_port(network)).await.is_ok() {}
    let none = neutron.create_port(by(&member), &new_port(network)).await.expect_err("none free");
    assert_eq!(none.kind(), Some(Type::IpAddressGenerationFailure), "{none}");
}

#[tokio::test]
async fn a_failed_binding_is_an_answer() {
    let (_fake, neutron, network) = cloud().await;
    let port = created(&neutron, network).await;
    let to = |host: &str| PortChange { host: Some(Some(host.into())), ..PortChange::default() };
    let failed = neutron.update_port(own(), port.id, &to("host9")).await.expect("an answer");
    assert!(failed.has_failed_binding(), "{failed:?}");
    let bound = neutron.update_port(own(), port.id, &to("host1")).await.expect("an answer");
    assert!(!bound.has_failed_binding(), "{bound:?}");
}

#[tokio::test]
async fn a_port_moves_between_its_bindings() {
    let (fake, neutron, network) = cloud().await;
    let port = created(&neutron, network).await.id;
    let to = PortChange { host: Some(Some("host1".into())), ..PortChange::default() };
    neutron.update_port(own(), port, &to).await.expect("the port is bound");
    let on = |host: &str| NewBinding {
        host: host.into(),
        vnic_type: "normal".into(),
        profile: profile(json!({"mine": 1})),
    };
    let prepared = neutron.create_binding(own(), port, &on("host2")).await.expect("a binding");
    assert_eq!((prepared.status, prepared.vif_type.as_str()), (BindingStatus::Inactive, "ovs"));
    let twice = neutron.create_binding(own(), port, &on("host2")).await.expect_err("twice");
    assert_eq!(twice.kind(), Some(Type::PortBindingAlreadyExists), "{twice}");
    let nowhere = neutron.create_binding(own(), port, &on("host9")).await.expect_err("no agent");
    assert_eq!(nowhere.kind(), Some(Type::PortBindingError), "{nowhere}");
    let active = neutron.activate_binding(own(), port, "host2").await.expect("a binding");
    assert_eq!(active.status, BindingStatus::Active);
    let twice = neutron.activate_binding(own(), port, "host2").await.expect_err("twice");
    assert_eq!(twice.kind(), Some(Type::PortBindingAlreadyActive), "{twice}");
    let found = neutron.bindings(own(), port).await.expect("a list");
    let old = found.iter().find(|binding| binding.host == "host1").expect("the old binding");
    assert_eq!((old.status, old.vif_type.as_str()), (BindingStatus::Inactive, "unbound"));
    neutron.delete_binding(own(), port, "host1").await.expect("the binding is deleted");
    let gone = neutron.delete_binding(own(), port, "host1").await.expect_err("it does not exist");
    assert_eq!(gone.kind(), Some(Type::PortBindingNotFound), "{gone}");
    assert_eq!(fake.state().hosts_of(&port.to_string()), ["host2"]);
}

#[tokio::test]
async fn lists_come_in_pages() {
    let (fake, neutron, network) = cloud().await;
    for _ in 0..5 {
        created(&neutron, network).await;
    }
    fake.state().page_size = 2;
    fake.take_calls();
    let fields = ["id", "device_id"];
    let ports = neutron.ports(own(), PortFilter::Device(SERVER), &fields).await.expect("a list");
    let mut ids: Vec<PortId> = ports.iter().map(|port| port.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 5);
    assert!(ports.iter().all(|port| port.device_id == SERVER && port.mac_address.is_empty()));
    assert_eq!(fake.take_calls(), ["GET /ports (admin)"; 3]);
    let other = neutron.ports(own(), PortFilter::Device("another"), &fields).await;
    assert_eq!(other.expect("a list"), []);
}

#[tokio::test]
async fn long_lists_of_ids_are_several_queries() {
    let (fake, neutron, network) = cloud().await;
    let shared = fake.state().add_network("8", "shared", json!({"shared": true}));
    let shared: NetworkId = shared.parse().expect("an id");
    let mut ids = vec![network, shared, network];
    let found = neutron.networks(own(), NetworkFilter::Ids(&ids)).await.expect("a list");
    assert_eq!(found.iter().map(|one| one.id).collect::<Vec<_>>(), ids, "in the order of the ids");
    ids.extend((0..400).map(|_| NetworkId::from_untyped_uuid(uuid::Uuid::new_v4())));
    fake.take_calls();
    let found = neutron.networks(own(), NetworkFilter::Ids(&ids)).await.expect("a list");
    assert_eq!(found.len(), 3, "unknown ids are omitted");
    assert_eq!(fake.take_calls().len(), 3);
    let nothing = neutron.subnets(own(), &[]).await.expect("a list");
    assert_eq!(nothing, [], "an empty list of ids selects no subnet");
    assert_eq!(fake.take_calls().len(), 0);
}

#[tokio::test]
async fn a_caller_sees_what_is_available() {
    let (fake, neutron, network) = cloud().await;
    let shared = fake.state().add_network("8", "shared", json!({"shared": true}));
    fake.state().add_network("8", "hidden", json!({}));
    let group = fake.state().add_group(PROJECT, "web", false);
    fake.state().add_group("8", "lent", true);
    let member = member(PROJECT);
    let project = NetworkFilter::Project { project: PROJECT, ready: false };
    let own_ones = neutron.networks(by(&member), project).await.expect("a list");
    assert_eq!(own_ones.iter().map(|one| one.id).collect::<Vec<_>>(), [network]);
    assert!(own_ones[0].port_security_enabled && own_ones[0].subnets.len() == 1);
    let lent = neutron.networks(by(&member), NetworkFilter::Shared).await.expect("a list");
    assert_eq!(lent.iter().map(|one| one.id.to_string()).collect::<Vec<_>>(), [shared]);
    let fields = ["id", "name"];
    for (filter, names) in [
        (GroupFilter::Project(PROJECT), vec!["web"]),
        (GroupFilter::Shared, vec!["lent"]),
        (GroupFilter::Ids(std::slice::from_ref(&group)), vec!["web"]),
    ] {
        let found = neutron.security_groups(by(&member), filter, &fields).await.expect("a list");
        assert_eq!(found.iter().map(|one| &*one.name).collect::<Vec<_>>(), names);
    }
    let port = created(&neutron, network).await;
    fake.state().add_floating_ip(&port.id.to_string(), "10.99.0.2", "203.0.113.9");
    let floating = neutron.floating_ips(own(), &[port.id]).await.expect("a list");
    assert_eq!(floating[0].floating_ip_address.to_string(), "203.0.113.9");
    assert_eq!(neutron.floating_ips(own(), &[]).await.expect("a list"), []);
}

#[tokio::test]
async fn extensions_are_asked_once_for_all() {
    let (fake, neutron, _) = cloud().await;
    fake.take_calls();
    let (one, two, three) = tokio::join!(
        neutron.has(own(), Extension::BindingExtended),
        neutron.has(own(), Extension::AutoAllocatedTopology),
        neutron.has(own(), Extension::DnsIntegration),
    );
    assert_eq!((one.ok(), two.ok(), three.ok()), (Some(true), Some(false), Some(true)));
    assert_eq!(fake.take_calls(), ["GET /extensions (admin)"]);
    let each_time =
        Neutron::new(service(&fake.auth_url(), Duration::from_secs(10)), Duration::ZERO);
    assert!(each_time.has(own(), Extension::Segment).await.expect("a list"));
    fake.fail("GET /extensions", Failure::Status(500), 1);
    assert!(each_time.has(own(), Extension::Segment).await.expect("the last list is used"));
    assert_eq!(fake.take_calls().len(), 2);
    fake.fail("GET /extensions", Failure::Status(500), 1);
    let fresh = Neutron::new(service(&fake.auth_url(), Duration::from_secs(10)), Duration::ZERO);
    fresh.has(own(), Extension::Segment).await.expect_err("no list was read yet");
}

/// A request is retried only if it is idempotent. A port whose creation was not confirmed is found
/// by its server.
#[tokio::test]
async fn a_lost_answer_is_not_a_second_port() {
    let (fake, neutron, network) = cloud().await;
    let member = member(PROJECT);
    fake.fail("POST /ports", Failure::AnswerLost, 1);
    fake.take_calls();
    let lost = neutron.create_port(by(&member), &new_port(network)).await;
    let lost = lost.expect_err("the answer is lost");
    assert!(lost.may_have_effect(), "{lost}");
    assert_eq!(fake.take_calls(), ["POST /ports (member)"]);
    let found = neutron.ports(by(&member), PortFilter::Device(SERVER), &[]).await.expect("a list");
    assert_eq!(found.len(), 1);
    let to = PortChange { host: Some(Some("host1".into())), ..PortChange::default() };
    fake.fail("PUT /ports", Failure::AnswerLost, 2);
    fake.take_calls();
    let bound = neutron.update_port(own(), found[0].id, &to).await.expect("the request is retried");
    assert_eq!(bound.host, "host1");
    assert_eq!(fake.take_calls().len(), 3);
    fake.fail("DELETE /ports", Failure::Lost, 9);
    let never = neutron.delete_port(own(), bound.id).await.expect_err("Neutron never answers");
    assert_eq!(fake.take_calls().len(), 4, "three retries");
    let refusal = never.into_refusal();
    assert_eq!((refusal.kind, refusal.retry_after), (Kind::Unavailable, Some(1)));
    assert!(!refusal.message.contains("127.0.0.1"), "{}", refusal.message);
}

#[tokio::test]
async fn a_slow_neutron_costs_a_bounded_time() {
    let (fake, _, network) = cloud().await;
    let quick = Neutron::new(
        service(&fake.auth_url(), Duration::from_millis(200)),
        Duration::from_secs(600),
    );
    fake.fail("POST /ports", Failure::Slow(Duration::from_secs(30)), 1);
    let begun = Instant::now();
    let member = member(PROJECT);
    let slow = quick.create_port(by(&member), &new_port(network)).await.expect_err("too slow");
    assert!(slow.may_have_effect(), "{slow}");
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn failures_become_refusals_that_users_can_act_on() {
    let (fake, neutron, network) = cloud().await;
    let stranger = member("9");
    let port = created(&neutron, network).await.id;
    let invisible = neutron.port(by(&stranger), port).await.expect_err("another project's port");
    assert_eq!(invisible.into_refusal().kind, Kind::NotFound);
    let member = member(PROJECT);
    let to = PortChange { host: Some(Some("host1".into())), ..PortChange::default() };
    let forbidden = neutron
        .update_port(by(&member), port, &to)
        .await
        .expect_err("only administrators bind ports");
    assert_eq!(forbidden.into_refusal().kind, Kind::Forbidden);
    let nobody = http::HeaderValue::from_static("expired");
    let unknown = neutron.port(by(&nobody), port).await.expect_err("an expired token");
    assert_eq!(unknown.into_refusal().kind, Kind::Unauthorized);
    for status in [500, 502, 503] {
        fake.fail("GET /ports", Failure::Status(status), 1);
        let failed = neutron.port(own(), port).await.expect_err("it fails");
        let refused = failed.refused().expect("a refusal");
        assert_eq!(refused.status, StatusCode::from_u16(status).expect("a status"));
        assert_eq!(failed.into_refusal().kind, Kind::Unavailable);
    }
    let gone: Error = kilonova_keystone::Error::Setup("no".into()).into();
    assert_eq!(gone.into_refusal().kind, Kind::Unavailable);
    assert!(matches!(own().caller, Caller::Own));
}
