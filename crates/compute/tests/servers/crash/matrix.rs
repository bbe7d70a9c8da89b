//! Runs an operation repeatedly, with a crash at another write each time, until a run has no crash.
//!
//! There are three kinds of crash: of everything, of only the services, and of only the agents. The services die before
//! a write's commit on one store and after it on the other; the stores take turns with each write. A store alone has both, and
//! so has each store with `KILONOVA_CRASHES` set to `all`, as in `make test-long`.
//! After the restart every server ends in a state that the operation allows, the ledger's rules
//! hold, hosts and memory agree with the ledger, and after all servers are deleted nothing is left.

use std::time::Duration;

use jiff::SignedDuration;
use kilonova_compute_app::Options;
use kilonova_store::testing::{CrashPlan, Death};
use kilonova_testkit::neutron::FakeNeutron;
use tokio::task::JoinSet;

use super::super::gpu_topology::exclusive;
use super::super::{numa, numa_moves};
use super::Flow;
use crate::kit::{Cloud, RunningCloud};

/// More writes than any operation has.
const MOST: u64 = 60;
const DEATHS: [Death; 2] = [Death::BeforeCommit, Death::AfterCommit];

/// The deaths at a write on a store, which are one of both or all of them.
fn deaths(store: usize, at: u64, all: bool) -> impl Iterator<Item = Death> {
    let (store, at) = (store as u64, at % 2);
    let each = DEATHS.into_iter().zip(0..);
    each.filter(move |(_, number)| all || (store + at + number) % 2 == 0).map(|(death, _)| death)
}

#[test]
fn each_write_has_both_deaths_on_the_stores_together() {
    for at in 0..4 {
        let of = |store, all| deaths(store, at, all).collect::<Vec<_>>();
        assert_eq!((of(0, true).len(), of(0, false).len(), of(1, false).len()), (2, 1, 1));
        assert_ne!(of(0, false), of(1, false));
        assert_ne!(of(0, false), deaths(0, at + 1, false).collect::<Vec<_>>());
    }
}

pub async fn run(flow: Flow) {
    run_with(flow, Options::default()).await;
}

/// [`run`] with options.
pub async fn run_with(flow: Flow, options: Options) {
    run_in(flow, options, None).await;
}

/// [`run`] with the Glance of a cloud. Its calls are between writes, so a crash after one write and before
/// the next is one before or after a call.
pub async fn run_on_glance(flow: Flow) {
    run_in(flow, Options::default(), Some(Elsewhere::Glance)).await;
}

/// [`run`] with the Neutron of a cloud. Each of its calls is between two writes too.
pub async fn run_on_neutron(flow: Flow) {
    run_in(flow, Options::default(), Some(Elsewhere::Neutron)).await;
}

/// [`run_on_neutron`], where guests are paused until their ports are plugged.
pub async fn run_on_late_neutron(flow: Flow) {
    run_in(flow, Options::default(), Some(Elsewhere::LateNeutron)).await;
}

/// The service of the cloud that runs elsewhere.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Elsewhere {
    Glance,
    Neutron,
    /// Its agents plug ports a moment after they are bound.
    LateNeutron,
}

async fn run_in(flow: Flow, options: Options, elsewhere: Option<Elsewhere>) {
    let clouds = Cloud::all((flow.topology)()).await;
    let all = clouds.len() < 2 || std::env::var("KILONOVA_CRASHES").is_ok_and(|text| text == "all");
    let least = if all { 8 } else { 5 };
    let mut agents = JoinSet::new();
    for (store, mut cloud) in clouds.into_iter().enumerate() {
        cloud.options = options.clone();
        match elsewhere {
            Some(Elsewhere::Glance) => drop(cloud.start_glance().await),
            Some(Elsewhere::Neutron) => drop(cloud.start_neutron().await),
            Some(Elsewhere::LateNeutron) => {
                agents.spawn(plug(cloud.start_neutron().await));
                if let Some(neutron) = &mut cloud.neutron {
                    neutron.options.vif_plugging_timeout = SignedDuration::from_millis(200);
                }
            }
            None => {}
        }
        let mut running = cloud.start().await;
        running.wait_for_hosts().await;
        let mut points = 0;
        for everything in [true, false] {
            for at in 0.. {
                assert!(at < MOST, "{}: no end", flow.name);
                let mut died = false;
                for death in deaths(store, at, all) {
                    let plan = CrashPlan::at(at, death);
                    (running, died) = crash(&flow, &cloud, running, plan, everything, died).await;
                    points += u32::from(died);
                }
                if !died {
                    break;
                }
            }
        }
        points += crash_nodes(&flow, &cloud, &mut running).await;
        assert!(points >= least, "{}: {points} crash points", flow.name);
        println!("{} on {}: {points} crash points", flow.name, cloud.name);
        running.kill().await;
    }
}

/// The agents of a Neutron, until the task is dropped.
async fn plug(neutron: FakeNeutron) {
    loop {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let mut state = neutron.state();
        for port in state.ports() {
            if port["status"] == "DOWN" && port["binding:vif_type"] == "ovs" {
                state.set_status(port["id"].as_str().unwrap_or_default(), "ACTIVE");
            }
        }
    }
}

/// One run in which the services, or everything, crash as the plan says. Returns the restarted
/// cloud, and true if this crash or the one before it happened.
async fn crash(
    flow: &Flow,
    cloud: &Cloud,
    mut running: RunningCloud,
    plan: CrashPlan,
    everything: bool,
    before: bool,
) -> (RunningCloud, bool) {
    let when = format!("{} {plan:?} of {}", flow.name, if everything { "all" } else { "services" });
    let id = flow.prepare(cloud, &running).await;
    if everything {
        running.kill().await;
        running = cloud.start_with_plan(plan.clone()).await;
        running.wait_for_hosts().await;
    } else {
        running.replace_services(cloud, plan.clone()).await;
    }
    let answered = flow.act(cloud, &running, id.as_deref()).await;
    running.wait_all_idle_or_dead().await;
    let died = plan.is_dead();
    cloud.audit(&when).await;
    if flow.flavor.starts_with("alone") {
        exclusive::assert_closed(cloud, &when).await;
    }
    if everything {
        running.kill().await;
        running = cloud.start().await;
        running.wait_for_hosts().await;
    } else {
        running.replace_services(cloud, CrashPlan::default()).await;
    }
    finish(flow, cloud, &running, answered, &when).await;
    (running, died || before)
}

/// Runs the operation once for each number of writes after which the agents crash.
async fn crash_nodes(flow: &Flow, cloud: &Cloud, running: &mut RunningCloud) -> u32 {
    let mut points = 0;
    for after in 0.. {
        let when = format!("{} nodes die after {after} writes", flow.name);
        let id = flow.prepare(cloud, running).await;
        cloud.store_heartbeats().await;
        let plan = CrashPlan::counting();
        running.replace_services(cloud, plan.clone()).await;
        let mut quiet = false;
        let answered = if after == 0 {
            running
                .restart_nodes(cloud, async |running| flow.act(cloud, running, id.as_deref()).await)
                .await
        } else {
            let answered = flow.act(cloud, running, id.as_deref()).await;
            while plan.writes() < after && !quiet {
                tokio::task::yield_now().await;
                quiet = running.all_idle().await;
            }
            running.restart_nodes(cloud, async |_| answered).await
        };
        finish(flow, cloud, running, answered, &when).await;
        if quiet {
            break;
        }
        points += 1;
    }
    points
}

async fn finish(flow: &Flow, cloud: &Cloud, running: &RunningCloud, answered: bool, when: &str) {
    let servers = running.wait_all_idle().await;
    running.wait_for_host_cleanup(cloud).await;
    // The last commit of the crashed services may follow the start of their successors.
    running.compute.world.load(&cloud.store).await.expect("the providers are loaded");
    flow.undo_side_effects(cloud, running, &servers).await;
    flow.assert_statuses(&servers, answered, when);
    cloud.assert_consistent(running, when).await;
    if flow.flavor.starts_with("alone") {
        exclusive::assert_closed(cloud, when).await;
    }
    if flow.flavor == "dedicated" {
        numa_moves::assert_guests_have_their_pins(cloud, &servers, when).await;
    }
    if let Some(neutron) = &cloud.neutron {
        cloud.wait_for_neutron().await;
        neutron.assert_as_servers_say(&servers, when);
    }
    cloud.teardown(running, when).await;
    assert!(numa::pins_of_all(cloud).await.is_empty(), "{when}: CPUs are still pinned");
    if let Some(neutron) = &cloud.neutron {
        cloud.wait_for_neutron().await;
        let left = neutron.fake.state().ports();
        assert!(left.is_empty(), "{when}: ports are left: {left:?}");
    }
    if let Some(glance) = &cloud.glance {
        cloud.sweep_glance(running).await;
        for (id, image) in glance.images() {
            let is_whole = image.shown["status"] == "active";
            let is_shelved = image.shown["name"].as_str().is_some_and(|n| n.ends_with("-shelved"));
            assert!(is_whole && !is_shelved, "{when}: image {id} is left: {:?}", image.shown);
        }
    }
}
