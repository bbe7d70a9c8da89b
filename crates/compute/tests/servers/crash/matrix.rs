//! Runs an operation repeatedly, with a crash at another write each time, until a run has no crash.
//!
//! There are three kinds of crash: of everything, of only the services, and of only the agents. The stores share the
//! crashes and alternate: at each write, everything dies on one store, and only the services die on the other. In one
//! flow, everything dies before the commits and the services die after them, or vice versa, because a death after a
//! commit and a death before the next one leave the same rows. A store without a partner has all crashes with both
//! deaths, and so has each store with `KILONOVA_CRASHES=all` ([`Share`]).
//!
//! After the restart, every server ends in a state that the operation allows, the ledger's rules hold, hosts and memory
//! agree with the ledger, and the deletion of all servers leaves nothing behind.

use std::time::Duration;

use jiff::SignedDuration;
use kilonova_compute_app::Options;
use kilonova_store::testing::{CrashPlan, Death};
use kilonova_testkit::neutron::FakeNeutron;
use kilonova_testkit::{Share, shared};
use tokio::task::JoinSet;

use super::super::gpu_topology::exclusive;
use super::super::{numa, numa_moves};
use super::Flow;
use crate::kit::{Cloud, RunningCloud};

/// More writes than any operation has.
const MOST: usize = 60;
const DEATHS: [Death; 2] = [Death::BeforeCommit, Death::AfterCommit];

/// The deaths that a store has at a write, of everything or of only the services. Everything dies at the writes that
/// are the store's turn. If `before`, everything dies before the commit and the services die after it; otherwise vice
/// versa.
fn deaths(share: Share, before: bool, at: usize, everything: bool) -> &'static [Death] {
    if share == Share::Whole {
        &DEATHS
    } else if everything != share.has(at) {
        &[]
    } else if everything == before {
        &DEATHS[..1]
    } else {
        &DEATHS[1..]
    }
}

#[test]
fn the_stores_together_have_all_kinds_of_crash_at_each_write() {
    for (at, everything) in (0..4).flat_map(|at| [(at, true), (at, false)]) {
        assert_eq!(deaths(Share::Whole, true, at, everything).len(), 2);
        for before in [true, false] {
            let both = [0, 1].map(|store| deaths(Share::Half(store), before, at, everything));
            let death = if everything == before { Death::BeforeCommit } else { Death::AfterCommit };
            assert_eq!(both.concat(), [death]);
            let next = deaths(Share::Half(0), before, at + 1, everything);
            assert_ne!(both[0].len(), next.len(), "the stores alternate");
        }
    }
}

pub async fn run(flow: Flow) {
    run_with(flow, Options::default()).await;
}

/// [`run`] with options.
pub async fn run_with(flow: Flow, options: Options) {
    run_in(flow, options, None).await;
}

/// [`run`] with the Glance of a cloud. Its calls are between writes, so the crashes after one write and before
/// the next are also crashes before and after a call.
pub async fn run_on_glance(flow: Flow) {
    run_in(flow, Options::default(), Some(External::Glance)).await;
}

/// [`run`] with the Neutron of a cloud. Each of its calls is between two writes too.
pub async fn run_on_neutron(flow: Flow) {
    run_in(flow, Options::default(), Some(External::Neutron)).await;
}

/// [`run_on_neutron`] with guests that are paused until their ports are plugged.
pub async fn run_on_late_neutron(flow: Flow) {
    run_in(flow, Options::default(), Some(External::LateNeutron)).await;
}

/// An external service of the cloud.
#[derive(Clone, Copy, PartialEq, Eq)]
enum External {
    Glance,
    Neutron,
    /// A Neutron with agents that plug ports a moment after they are bound.
    LateNeutron,
}

async fn run_in(flow: Flow, options: Options, external: Option<External>) {
    let clouds = Cloud::all((flow.topology)()).await;
    // The order of the deaths varies among the flows.
    let before = flow.name.len().is_multiple_of(2);
    let mut agents = JoinSet::new();
    let mut together = 0;
    for (share, mut cloud) in shared(clouds) {
        cloud.options = options.clone();
        match external {
            Some(External::Glance) => drop(cloud.start_glance().await),
            Some(External::Neutron) => drop(cloud.start_neutron().await),
            Some(External::LateNeutron) => {
                agents.spawn(plug(cloud.start_neutron().await));
                if let Some(neutron) = &mut cloud.neutron {
                    neutron.options.vif_plugging_timeout = SignedDuration::from_millis(200);
                }
            }
            None => {}
        }
        if ["loaded", "spoilt"].contains(&flow.flavor) {
            cloud.add_bitstreams().await;
        }
        let mut running = cloud.start().await;
        running.wait_for_hosts().await;
        let mut points = 0;
        for everything in [true, false] {
            for at in 0.. {
                assert!(at < MOST, "{}: no end", flow.name);
                let deaths = deaths(share, before, at, everything);
                let mut died = deaths.is_empty();
                for death in deaths {
                    let plan = CrashPlan::at(at as u64, *death);
                    let happened;
                    (running, happened) = crash(&flow, &cloud, running, plan, everything).await;
                    points += u32::from(happened);
                    died |= happened;
                }
                if !died {
                    break;
                }
            }
        }
        points += crash_nodes(&flow, &cloud, &mut running, share).await;
        // The shortest operation has two writes. The number of deaths of agents depends on the times of their writes; a
        // store that begins with the second write may have none.
        let least = if share == Share::Whole { 8 } else { 2 };
        assert!(points >= least, "{}: {points} crash points", flow.name);
        together += points;
        println!("{} on {}: {points} crash points", flow.name, cloud.name);
        running.kill().await;
    }
    assert!(together >= 5, "{}: {together} crash points", flow.name);
}

/// Acts as the agents of a Neutron, until the task is dropped.
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
/// cloud, and true if the crash happened.
async fn crash(
    flow: &Flow,
    cloud: &Cloud,
    mut running: RunningCloud,
    plan: CrashPlan,
    everything: bool,
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
    (running, died)
}

/// Runs the operation once for each number of writes after which the agents crash, if that number is the store's turn.
async fn crash_nodes(flow: &Flow, cloud: &Cloud, running: &mut RunningCloud, share: Share) -> u32 {
    let mut points = 0;
    for after in (0..).filter(|after| share.has(*after)) {
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
            // Checks the number of writes every millisecond, and the servers, which takes a request, every fourth time.
            let mut checks = 0;
            while plan.writes() < after as u64 && !quiet {
                tokio::time::sleep(Duration::from_millis(1)).await;
                checks += 1;
                quiet = checks % 4 == 0 && running.all_idle().await;
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
