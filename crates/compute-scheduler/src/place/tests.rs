//! Tests of plans: the best candidates by cost, and alternates on other hosts.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use kilonova_compute_db::fleet::{About, HostRow, Version};
use kilonova_compute_db::server_groups::Policy;
use kilonova_compute_db::servers::Spec;
use kilonova_engine::{Alike, Group, Inventory, Provider, Query, Snapshot, Tree};
use kilonova_ids::{HostId, HostName, ProviderId, ResourceClass};
use serde_json::json;

use super::{ALTERNATES, places, places_with_intentions};
use crate::constraints::{Constraints, GroupFacts, Scope};
use crate::facts::Facts;
use crate::fleet::Fleet;
use crate::intended::Intended;
use crate::packer::Packer;
use crate::rules::Rules;

fn id(number: u128) -> ProviderId {
    ProviderId::from_bytes(number.to_be_bytes())
}

fn provider(number: u128, parent: Option<u128>, class: &str, total: i64, used: i64) -> Provider {
    let inventory = Inventory { used, ..Inventory::of(total) };
    Provider {
        id: id(number),
        name: format!("p{number}").into(),
        parent: parent.map(id),
        version: 0,
        inventories: vec![(ResourceClass::verbatim(class), inventory)],
        traits: Vec::new(),
        aggregates: Vec::new(),
    }
}

/// Adds a host with one GPU of 16 units, of which `used` are in use.
fn host(fleet: &Fleet, world: &mut Snapshot, number: u128, used: i64) {
    let gpu = provider(number * 10 + 1, Some(number * 10), "VGPU", 16, used);
    host_of(fleet, world, number, vec![gpu]);
}

/// Adds a host with these devices.
fn host_of(fleet: &Fleet, world: &mut Snapshot, number: u128, devices: Vec<Provider>) {
    let mut providers = vec![provider(number * 10, None, "VCPU", 64, 0)];
    providers.extend(devices);
    world.upsert(Tree { providers });
    fleet.refresh(&HostRow {
        version: Version { number: 1, revision: 0, epoch: 1 },
        host: HostName::verbatim(format!("host{number}")),
        id: HostId::new_v4(),
        root: id(number * 10),
        generation: 1,
        enabled: true,
        forced_down: false,
        availability_zone: "nova".into(),
        last_seen: Timestamp::UNIX_EPOCH,
        reported_at: Timestamp::UNIX_EPOCH,
        about: About::default(),
    });
}

fn spec() -> Spec {
    let flavor = json!({
        "id": "1", "name": "gpu", "vcpus": 1, "ram": 0, "disk": 0, "ephemeral": 0, "swap": 0, "extra_specs": {},
    });
    serde_json::from_value(json!({
        "flavor": flavor, "image": null, "image_properties": {}, "key_name": null, "hostname": "", "config_drive": false,
        "user_data": null, "availability_zone": null, "wanted_host": null, "hints": {}, "reservation_id": "",
        "launch_index": 0, "access": ["", ""], "disk_config": "AUTO",
    }))
    .expect("a specification")
}

/// Requests for one unit of a device, each with a different seed.
fn queries(count: u64) -> Vec<Query> {
    let device = Group {
        suffix: "_1".into(),
        resources: vec![(ResourceClass::verbatim("VGPU"), 1)],
        ..Group::default()
    };
    let own = Group { resources: vec![(ResourceClass::verbatim("VCPU"), 1)], ..Group::default() };
    let one = |seed| Query { groups: vec![own.clone(), device.clone()], seed, ..Query::default() };
    (0..count).map(one).collect()
}

#[test]
fn alternates_are_also_on_hosts_that_are_not_the_fullest() {
    let (fleet, mut world, packer) = (Fleet::default(), Snapshot::default(), Packer::default());
    // Each of twenty hosts has one free unit. Concurrent requests may take all of these units.
    (1..=20).for_each(|number| host(&fleet, &mut world, number, 15));
    (21..=40).for_each(|number| host(&fleet, &mut world, number, 0));
    let spec = spec();
    let (rules, excluded, facts) = (Rules::default(), HashSet::new(), Facts::default());
    let scope = Scope { fleet: &fleet, packer: &packer, rules: &rules };
    let constraints =
        Constraints::new(scope, ("p", &spec), &facts, &excluded, Timestamp::UNIX_EPOCH);
    let mut elsewhere = 0;
    for query in queries(20) {
        let plan = places(&world, &constraints, &query, 1).expect("hosts have room");
        let candidates = &plan[0].candidates;
        assert_eq!(candidates.len(), ALTERNATES);
        assert!(candidates[0].root <= id(200), "the best candidate is on one of the fullest hosts");
        let roots: HashSet<ProviderId> = candidates.iter().map(|one| one.root).collect();
        assert_eq!(roots.len(), ALTERNATES, "each host has one device");
        elsewhere += usize::from(roots.iter().any(|root| *root > id(200)));
    }
    // Each of the four walks for alternates starts at a random host: one of the fullest or an empty one.
    assert!(elsewhere >= 17, "{elsewhere} of 20 choices have alternates on empty hosts");
}

#[test]
fn servers_that_must_be_together_fill_the_host_that_just_holds_them() {
    let (fleet, mut world, packer) = (Fleet::default(), Snapshot::default(), Packer::default());
    host(&fleet, &mut world, 1, 15);
    host(&fleet, &mut world, 2, 0);
    host(&fleet, &mut world, 3, 14);
    host(&fleet, &mut world, 4, 8);
    let spec = spec();
    let (rules, excluded, facts) = (Rules::default(), HashSet::new(), Facts::default());
    let scope = Scope { fleet: &fleet, packer: &packer, rules: &rules };
    let group = |hosts| GroupFacts { policy: Policy::Affinity, max_per_host: 1, hosts };
    let constraints = |group| Constraints {
        group: Some(group),
        ..Constraints::new(scope, ("p", &spec), &facts, &excluded, Timestamp::UNIX_EPOCH)
    };
    for query in queries(8) {
        let roots = |group, count| {
            let plan = places(&world, &constraints(group), &query, count).expect("there is room");
            plan.iter().map(|choice| choice.candidates[0].root).collect::<Vec<_>>()
        };
        let empty_group = || group(HashMap::new());
        assert_eq!(roots(empty_group(), 2), [id(30), id(30)], "host 3 has exactly two free units");
        assert_eq!(roots(empty_group(), 3), [id(40); 3], "host 4 is fuller than the empty host");
        assert_eq!(
            roots(empty_group(), 12),
            [id(20); 12],
            "only the empty host has twelve free units"
        );
        let members = HashMap::from([(HostName::verbatim("host4"), 1)]);
        assert_eq!(roots(group(members), 2), [id(40), id(40)], "the group is on host 4");
        assert_eq!(roots(empty_group(), 20).len(), 16, "no host has more units");
    }
}

#[test]
fn requests_that_are_not_claimed_yet_get_different_room() {
    let (fleet, mut world, packer) = (Fleet::default(), Snapshot::default(), Packer::default());
    host(&fleet, &mut world, 1, 13);
    host(&fleet, &mut world, 2, 0);
    let spec = spec();
    let (rules, excluded, facts) = (Rules::default(), HashSet::new(), Facts::default());
    let scope = Scope { fleet: &fleet, packer: &packer, rules: &rules };
    let constraints =
        Constraints::new(scope, ("p", &spec), &facts, &excluded, Timestamp::UNIX_EPOCH);
    let intended = Intended::default();
    let plan = |query: &Query| places_with_intentions(&world, &intended, &constraints, query, 1);
    let (mut begun, mut roots) = (Vec::new(), Vec::new());
    for query in queries(5) {
        let plan = plan(&query).expect("there is room");
        roots.push(plan[0].candidates[0].root);
        begun.push(intended.begin(&plan));
    }
    assert_eq!(roots, [id(10), id(10), id(10), id(20), id(20)], "three units, then the other host");
    begun.clear();
    let again = plan(&queries(1)[0]).expect("there is room");
    assert_eq!(again[0].candidates[0].root, id(10), "the intentions have ended");
    // The intentions cover all units of both hosts, but an intention never blocks a request.
    let begun: Vec<_> = queries(19)
        .iter()
        .map(|query| intended.begin(&plan(query).expect("there is room")))
        .collect();
    let plan_of_one = plan(&queries(1)[0]).expect("nothing is claimed, so there is room");
    assert_eq!(plan_of_one[0].candidates[0].root, id(10));
    drop(begun);
}

#[test]
fn hosts_of_another_controller_are_used_if_there_are_too_few_others() {
    let (fleet, mut world, packer) = (Fleet::default(), Snapshot::default(), Packer::default());
    host(&fleet, &mut world, 1, 15);
    host(&fleet, &mut world, 2, 8);
    host(&fleet, &mut world, 3, 0);
    let spec = spec();
    let (rules, excluded, facts) = (Rules::default(), HashSet::new(), Facts::default());
    let scope = Scope { fleet: &fleet, packer: &packer, rules: &rules };
    let first = |foreign: &[u128]| {
        let foreign = foreign.iter().copied().map(id).collect();
        let constraints =
            Constraints::new(scope, ("p", &spec), &facts, &excluded, Timestamp::UNIX_EPOCH);
        let constraints = Constraints { foreign: Some(&foreign), ..constraints };
        let plan = places(&world, &constraints, &queries(1)[0], 1).expect("there is room");
        plan[0].candidates[0].root
    };
    assert_eq!(first(&[]), id(10), "the fullest");
    assert_eq!(first(&[10]), id(20), "the next one");
    assert_eq!(first(&[10, 20]), id(30), "the last one");
    assert_eq!(first(&[10, 20, 30]), id(10), "all are used again");
}

/// A card in MIG mode has one provider for each type of vGPU. How full a card is depends also on the usage of the types
/// that the request does not name.
#[test]
fn of_the_cards_of_a_host_the_fullest_one_gets_an_instance() {
    let (fleet, mut world, packer) = (Fleet::default(), Snapshot::default(), Packer::default());
    let part = |at: u128, card: u128, class: &str, total, used| Provider {
        name: format!("host1_0000:{card}:00.0_nvidia-{at}").into(),
        ..provider(10 + 2 * card + at, Some(10), class, total, used)
    };
    // Each card has room for one large instance; the first and the last card are emptier.
    let cards = [(1, 0), (2, 3), (3, 1)];
    let parts = cards.iter().flat_map(|(card, used)| {
        [part(0, *card, "LARGE", 1, 0), part(1, *card, "SMALL", 7, *used)]
    });
    host_of(&fleet, &mut world, 1, parts.collect());
    let spec = spec();
    let (rules, excluded, facts) = (Rules::default(), HashSet::new(), Facts::default());
    let scope = Scope { fleet: &fleet, packer: &packer, rules: &rules };
    let constraints =
        Constraints::new(scope, ("p", &spec), &facts, &excluded, Timestamp::UNIX_EPOCH);
    let amounts = [("VCPU", 1), ("LARGE", 1)];
    let resources = amounts.map(|(class, amount)| (ResourceClass::verbatim(class), amount));
    for seed in 0..8 {
        let groups = vec![Group { resources: resources.to_vec(), ..Group::default() }];
        let query = Query { groups, seed, ..Query::default() };
        let plan = places(&world, &constraints, &query, 1).expect("there is room");
        let first = plan[0].candidates[0].allocations.iter().find(|(root, ..)| *root != id(10));
        assert_eq!(first.map(|(card, ..)| *card), Some(id(14)), "seed {seed}");
    }
}

/// Only the last host has an island. All other hosts are excluded, so the number of rejected hosts
/// in the decision shows how many of them were examined.
#[test]
fn hosts_that_cannot_meet_a_condition_on_places_are_not_examined() {
    let (fleet, mut world, packer) = (Fleet::default(), Snapshot::default(), Packer::default());
    (1..=300).for_each(|number| host(&fleet, &mut world, number, 8));
    let mut gpu = provider(3011, Some(3010), "VGPU", 16, 0);
    gpu.traits = vec!["CUSTOM_GPU_ISLAND_0".into()];
    host_of(&fleet, &mut world, 301, vec![gpu]);
    let spec = spec();
    let excluded = (1..=300).map(|number| HostName::verbatim(format!("host{number}"))).collect();
    let (rules, facts) = (Rules::default(), Facts::default());
    let scope = Scope { fleet: &fleet, packer: &packer, rules: &rules };
    let constraints =
        Constraints::new(scope, ("p", &spec), &facts, &excluded, Timestamp::UNIX_EPOCH);
    let rejected = |how: &str| {
        let (_, text) = how.split_once("Rejected: ").expect("hosts were rejected");
        let number: String = text.chars().take_while(char::is_ascii_digit).collect();
        number.parse::<usize>().expect("a number of hosts")
    };
    for mut query in queries(4) {
        let plan = places(&world, &constraints, &query, 1).expect("the last host has room");
        assert_eq!(plan[0].candidates[0].root, id(3010));
        assert_eq!(rejected(&plan[0].how), 300, "all are examined: {}", plan[0].how);
        query.alike = vec![Alike {
            groups: vec!["_1".into()],
            prefix: "CUSTOM_GPU_ISLAND_".into(),
            ..Alike::default()
        }];
        let plan = places(&world, &constraints, &query, 1).expect("the last host has an island");
        assert_eq!(plan[0].candidates[0].root, id(3010));
        assert!(rejected(&plan[0].how) <= 64, "one batch is examined: {}", plan[0].how);
    }
}
