//! Tests plans on small clouds. On random clouds, the result is compared with an exhaustive trial of single moves. On
//! the other clouds, the plan was found by hand.

use std::collections::HashSet;

use jiff::Timestamp;
use kilonova_compute_db::fleet::{About, HostRow, Version};
use kilonova_compute_db::servers::Spec;
use kilonova_engine::{Group, Inventory, Provider, Query, Snapshot, Tree};
use kilonova_ids::{HostId, HostName, ProviderId, ResourceClass, ServerId};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::fleet::Fleet;
use crate::packer::Packer;
use crate::rules::Rules;

/// The number of units of a GPU.
const UNITS: i64 = 4;
/// The number of CPUs of a host.
const CPUS: i64 = 16;
const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn id(number: u128) -> ProviderId {
    ProviderId::from_bytes(number.to_be_bytes())
}

fn vcpu() -> ResourceClass {
    ResourceClass::verbatim("VCPU")
}

fn vgpu() -> ResourceClass {
    ResourceClass::verbatim("VGPU")
}

/// A guest of the test: its host, its GPU on that host, and the amounts that it requests.
#[derive(Debug, Clone, Copy)]
struct Small {
    host: usize,
    gpu: usize,
    cpus: i64,
    units: i64,
}

/// A cloud of the test. Its usage is the sum of its guests' amounts.
#[derive(Debug, Clone)]
struct Few {
    gpus: Vec<usize>,
    guests: Vec<Small>,
}

fn root(host: usize) -> ProviderId {
    id(10 * (host as u128 + 1))
}

fn gpu(host: usize, gpu: usize) -> ProviderId {
    id(10 * (host as u128 + 1) + gpu as u128 + 1)
}

impl Few {
    fn used(&self, provider: ProviderId) -> i64 {
        let amounts = self.guests.iter().flat_map(allocations);
        amounts.filter(|(of, ..)| *of == provider).map(|(_, _, amount)| amount).sum()
    }

    /// True if a request fits on a GPU and its host. Adds up the amounts without the scheduler.
    fn fits(&self, host: usize, at: usize, cpus: i64, units: i64) -> bool {
        self.used(root(host)) + cpus <= CPUS && self.used(gpu(host, at)) + units <= UNITS
    }

    fn places(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let of_host = |(host, gpus): (usize, &usize)| (0..*gpus).map(move |at| (host, at));
        self.gpus.iter().enumerate().flat_map(of_host)
    }

    fn fits_anywhere(&self, cpus: i64, units: i64) -> bool {
        self.places().any(|(host, at)| self.fits(host, at, cpus, units))
    }

    /// True if a single move makes room. Tries every move.
    fn has_one_move(&self, cpus: i64, units: i64) -> bool {
        (0..self.guests.len()).any(|nth| {
            let guest = self.guests[nth];
            self.places().any(|(host, at)| {
                let may = host != guest.host && self.fits(host, at, guest.cpus, guest.units);
                let mut then = self.clone();
                then.guests[nth] = Small { host, gpu: at, ..guest };
                may && then.fits_anywhere(cpus, units)
            })
        })
    }

    fn world(&self) -> Snapshot {
        let mut world = Snapshot::default();
        for (host, gpus) in self.gpus.iter().enumerate() {
            let provider = |provider: ProviderId, parent, class, total| Provider {
                id: provider,
                name: format!("{provider}").into(),
                parent,
                version: 0,
                inventories: vec![(
                    class,
                    Inventory { used: self.used(provider), ..Inventory::of(total) },
                )],
                traits: Vec::new(),
                aggregates: Vec::new(),
            };
            let mut providers = vec![provider(root(host), None, vcpu(), CPUS)];
            let parent = Some(root(host));
            providers.extend((0..*gpus).map(|at| provider(gpu(host, at), parent, vgpu(), UNITS)));
            world.upsert(Tree { providers });
        }
        world
    }

    fn fleet(&self) -> Fleet {
        let fleet = Fleet::default();
        for host in 0..self.gpus.len() {
            fleet.refresh(&HostRow {
                version: Version { number: 1, revision: 0, epoch: 1 },
                host: name(host),
                id: HostId::new_v4(),
                root: root(host),
                generation: 1,
                enabled: true,
                forced_down: false,
                availability_zone: "nova".into(),
                last_seen: NOW,
                reported_at: NOW,
                about: About::default(),
            });
        }
        fleet
    }

    fn movable(&self) -> Vec<Guest> {
        let guest = |(nth, small): (usize, &Small)| Guest {
            server: ServerId::from_bytes((nth as u128 + 1).to_be_bytes()),
            project_id: "p".into(),
            source: root(small.host),
            allocations: allocations(small),
            query: query(small.cpus, small.units),
            spec: spec(),
            facts: Facts::default(),
            excluded: HashSet::from([name(small.host)]),
            memory_mb: 1024 * small.cpus,
        };
        self.guests.iter().enumerate().map(guest).collect()
    }

    /// Runs a search for a request.
    fn search<T>(
        &self,
        cpus: i64,
        units: i64,
        search: impl FnOnce(&Snapshot, Scope<'_>, &Wanted<'_>, &[Guest]) -> T,
    ) -> T {
        let (fleet, packer, rules) = (self.fleet(), Packer::default(), Rules::default());
        let scope = Scope { fleet: &fleet, packer: &packer, rules: &rules };
        let (query, spec) = (query(cpus, units), spec());
        let (excluded, facts) = (HashSet::new(), Facts::default());
        let constraints = Constraints::new(scope, ("p", &spec), &facts, &excluded, NOW);
        let wanted = Wanted { constraints: &constraints, query: &query };
        search(&self.world(), scope, &wanted, &self.movable())
    }

    /// The plan for a request.
    fn plan(&self, cpus: i64, units: i64) -> Option<Rebalance> {
        self.search(cpus, units, |world, scope, wanted, guests| {
            make_room(world, scope, wanted, guests, &mut Searches(100_000)).expect("it is valid")
        })
    }

    /// The host whose drain makes room for most servers with the request.
    fn emptied(&self, cpus: i64, units: i64) -> Option<DrainPlan> {
        let hosts: Vec<ProviderId> = (0..self.gpus.len()).map(root).collect();
        self.search(cpus, units, |world, scope, wanted, guests| {
            empty_host(world, scope, wanted, guests, &hosts, &mut Searches(100_000))
                .expect("it is valid")
        })
    }

    /// Performs a move as a live migration does: the guest claims the destination while it still has its claim on the
    /// source.
    fn perform(&mut self, one: &Move) {
        let moved = self.guests[one.guest];
        let (host, at) = self
            .places()
            .find(|(host, at)| {
                one.to.allocations.iter().any(|(provider, ..)| *provider == gpu(*host, *at))
            })
            .expect("the destination is a GPU of the cloud");
        assert_ne!(host, moved.host, "a move changes the host");
        assert!(self.fits(host, at, moved.cpus, moved.units), "{one:?} has no room in {self:?}");
        self.guests[one.guest] = Small { host, gpu: at, ..moved };
    }
}

fn name(host: usize) -> HostName {
    HostName::verbatim(format!("host{host}"))
}

fn allocations(guest: &Small) -> Vec<Amount> {
    vec![(root(guest.host), vcpu(), guest.cpus), (gpu(guest.host, guest.gpu), vgpu(), guest.units)]
}

fn query(cpus: i64, units: i64) -> Query {
    let own = Group { resources: vec![(vcpu(), cpus)], ..Group::default() };
    let device =
        Group { suffix: "_1".into(), resources: vec![(vgpu(), units)], ..Group::default() };
    Query { groups: vec![own, device], ..Query::default() }
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

/// Random clouds that are nearly full.
fn clouds() -> impl Strategy<Value = Few> {
    let hosts = prop::collection::vec(1_usize..=2, 2..=5);
    let wishes = prop::collection::vec((any::<prop::sample::Index>(), 1_i64..=6, 1_i64..=3), 4..24);
    (hosts, wishes).prop_map(|(gpus, wishes)| {
        let mut few = Few { gpus, guests: Vec::new() };
        for (place, cpus, units) in wishes {
            let places: Vec<_> =
                few.places().filter(|(host, at)| few.fits(*host, *at, cpus, units)).collect();
            if !places.is_empty() {
                let (host, gpu) = *place.get(&places);
                few.guests.push(Small { host, gpu, cpus, units });
            }
        }
        few
    })
}

proptest! {
    #[test]
    fn after_the_moves_of_a_plan_the_request_fits_and_no_move_exceeds_a_host(
        few in clouds(), cpus in 1_i64..=8, units in 1_i64..=4,
    ) {
        let mut few = few;
        prop_assume!(!few.fits_anywhere(cpus, units));
        let has_one_move = few.has_one_move(cpus, units);
        let Some(plan) = few.plan(cpus, units) else {
            prop_assert!(!has_one_move, "one move makes room in {few:?}");
            return Ok(());
        };
        prop_assert!(plan.gain > 0);
        prop_assert!((1..=MAX_MOVES).contains(&plan.moves.len()));
        prop_assert_eq!(plan.moves.len() == 1, has_one_move, "the fewest moves");
        for one in &plan.moves {
            few.perform(one);
        }
        prop_assert!(few.fits_anywhere(cpus, units), "no room after {plan:?} in {few:?}");
    }
}

/// A cloud of guests with one CPU each, given as (host, GPU, units).
fn few(gpus: &[usize], guests: &[(usize, usize, i64)]) -> Few {
    let guest = |(host, gpu, units): &(usize, usize, i64)| Small {
        host: *host,
        gpu: *gpu,
        cpus: 1,
        units: *units,
    };
    Few { gpus: gpus.to_vec(), guests: guests.iter().map(guest).collect() }
}

#[test]
fn one_move_empties_a_gpu() {
    let plan = few(&[1, 1], &[(0, 0, 1), (1, 0, 2)]).plan(1, 4).expect("there is one");
    assert_eq!(plan.moves.len(), 1);
    assert_eq!((plan.moves[0].guest, plan.moves[0].to.root), (0, root(1)), "{plan:?}");
    assert_eq!(plan.gain, 1);
}

#[test]
fn two_moves_empty_a_gpu() {
    let mut few = few(&[1, 1, 1], &[(0, 0, 1), (0, 0, 1), (1, 0, 3), (2, 0, 3)]);
    let plan = few.plan(1, 4).expect("there is one");
    assert_eq!(plan.moves.len(), 2, "{plan:?}");
    plan.moves.iter().for_each(|one| few.perform(one));
    assert!(few.fits_anywhere(1, 4), "{plan:?}");
}

#[test]
fn the_first_move_makes_room_for_the_second() {
    // The guest with three units must leave host 0. Only host 1 can take it, and only after one of its own guests has
    // moved to host 2.
    let few = few(&[1, 1, 1], &[(0, 0, 3), (1, 0, 1), (1, 0, 1), (2, 0, 2), (2, 0, 1)]);
    let plan = few.plan(1, 4).expect("there is one");
    assert_eq!(plan.moves.len(), 2, "{plan:?}");
    let mut then = few;
    plan.moves.iter().for_each(|one| then.perform(one));
    assert!(then.fits_anywhere(1, 4), "{plan:?}");
}

#[test]
fn nothing_moves_where_nothing_is_gained() {
    assert_eq!(few(&[1, 1], &[(0, 0, 3), (1, 0, 2)]).plan(1, 4), None, "no GPU can be emptied");
    assert_eq!(few(&[1], &[(0, 0, 1)]).plan(1, 4), None, "there is no other host");
}

#[test]
fn devices_of_one_kind_are_counted_together_in_any_unit() {
    let world = few(&[2, 1], &[]).world();
    let of = |amounts: &[(ProviderId, i64)]| {
        let amounts: Vec<Amount> =
            amounts.iter().map(|(provider, amount)| (*provider, vgpu(), *amount)).collect();
        kinds(&world, &amounts)
    };
    let most = 1_000_000_000;
    let both = of(&[(gpu(0, 0), most), (gpu(0, 1), most)]);
    assert_eq!(both, of(&[(gpu(1, 0), 2 * most)]));
    assert_ne!(both, of(&[(gpu(1, 0), 2 * most - 1)]));
    assert!(kinds(&world, &[(root(0), vcpu(), most)]).is_empty(), "CPUs are not devices");
}

#[test]
fn a_search_ends_with_its_budget() {
    let few = few(&[1, 1], &[(0, 0, 1), (1, 0, 2)]);
    let (fleet, packer, rules) = (few.fleet(), Packer::default(), Rules::default());
    let scope = Scope { fleet: &fleet, packer: &packer, rules: &rules };
    let guests = few.movable();
    let constraints = guests[0].constraints(scope, NOW);
    let constraints = Constraints { excluded: &HashSet::new(), ..constraints };
    let query = query(1, 4);
    let wanted = Wanted { constraints: &constraints, query: &query };
    for searches in 0..4 {
        let plan = make_room(&few.world(), scope, &wanted, &guests, &mut Searches(searches));
        assert_eq!(plan, Ok(None), "{searches} searches are too few");
    }
}

#[test]
fn a_move_that_gathers_guests_lowers_the_cost() {
    let few = few(&[1, 1, 1], &[(0, 0, 1), (1, 0, 1), (2, 0, 4)]);
    let (fleet, packer, rules) = (few.fleet(), Packer::default(), Rules::default());
    // The expected requests are for whole GPUs.
    packer.record(&query(1, 4), 100);
    let scope = Scope { fleet: &fleet, packer: &packer, rules: &rules };
    let (world, guests) = (few.world(), few.movable());
    let lowered = lower_cost(&world, scope, &guests, NOW, &mut Searches(10_000));
    let lowered = lowered.expect("it is valid").expect("there is a move");
    assert_eq!(lowered.moves.len(), 1, "{lowered:?}");
    assert!(lowered.moves[0].guest < 2 && lowered.moves[0].to.root != root(2), "{lowered:?}");
    assert!(lowered.saved > 0.5, "{lowered:?}");
}

#[test]
fn the_host_that_gains_most_is_emptied() {
    // Host 0 has three guests on two GPUs; hosts 1 and 2 take all of them.
    let few = few(&[2, 2, 1], &[(0, 0, 1), (0, 0, 1), (0, 1, 1), (1, 0, 2), (1, 1, 4), (2, 0, 2)]);
    let found = few.emptied(1, 4).expect("there is one");
    assert_eq!((found.source, found.gain, found.moves.len()), (root(0), 2, 3), "{found:?}");
    let mut then = few;
    found.moves.iter().for_each(|one| then.perform(one));
    assert!(then.guests.iter().all(|guest| guest.host != 0), "{then:?}");
}

#[test]
fn a_host_whose_guests_have_no_place_is_not_emptied() {
    assert_eq!(few(&[1, 1], &[(0, 0, 3), (1, 0, 3)]).emptied(1, 4), None);
}
