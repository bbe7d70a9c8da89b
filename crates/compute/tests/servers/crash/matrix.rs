//! Does a flow again and again, with another death each time, until one run has no death in it.
//!
//! Three kinds of death: of everything, of the services while the nodes live on, and of the nodes
//! while the services live on. After the restart all must come to rest in a state that the flow
//! allows, the rules must hold, hosts and memory must be as the ledger says, and once all servers
//! are deleted nothing may be left.

use kilonova_compute::Options;
use kilonova_store::testing::{CrashPlan, Death};

use super::Flow;
use crate::kit::{Cloud, Up};

/// More writes than any flow has.
const MOST: u64 = 60;
const DEATHS: [Death; 2] = [Death::BeforeCommit, Death::AfterCommit];

pub async fn run(flow: Flow) {
    run_with(flow, Options::default()).await;
}

/// [`run`], with what an operator decided.
pub async fn run_with(flow: Flow, options: Options) {
    for mut cloud in Cloud::all((flow.topology)()).await {
        cloud.options = options.clone();
        let mut up = cloud.start().await;
        up.hosts_are_there().await;
        let mut points = 0;
        for whole in [true, false] {
            for at in 0.. {
                assert!(at < MOST, "{}: no end", flow.name);
                let mut died = false;
                for death in DEATHS {
                    let plan = CrashPlan::at(at, death);
                    (up, died) = crash(&flow, &cloud, up, plan, whole, died).await;
                    points += u32::from(died);
                }
                if !died {
                    break;
                }
            }
        }
        points += nodes(&flow, &cloud, &mut up).await;
        assert!(points >= 8, "{}: {points} crash points", flow.name);
        println!("{} on {}: {points} crash points", flow.name, cloud.name);
        up.kill().await;
    }
}

/// One run in which services, or everything, die as the plan says. Returns what runs afterwards,
/// and whether this death, or the one before, came.
async fn crash(
    flow: &Flow,
    cloud: &Cloud,
    mut up: Up,
    plan: CrashPlan,
    whole: bool,
    before: bool,
) -> (Up, bool) {
    let when = format!("{} {plan:?} of {}", flow.name, if whole { "all" } else { "services" });
    let id = flow.prepare(cloud, &up).await;
    if whole {
        up.kill().await;
        up = cloud.start_by(plan.clone()).await;
        up.hosts_are_there().await;
    } else {
        up.succeed(cloud, plan.clone()).await;
    }
    let answered = flow.act(cloud, &up, id.as_deref()).await;
    up.settle_or_die().await;
    let died = plan.is_dead();
    cloud.audit(&when).await;
    if whole {
        up.kill().await;
        up = cloud.start().await;
        up.hosts_are_there().await;
    } else {
        up.succeed(cloud, CrashPlan::default()).await;
    }
    finish(flow, cloud, &up, answered, &when).await;
    (up, died || before)
}

/// The nodes die after each number of writes that the flow has come to.
async fn nodes(flow: &Flow, cloud: &Cloud, up: &mut Up) -> u32 {
    let mut points = 0;
    for after in 0.. {
        let when = format!("{} nodes die after {after} writes", flow.name);
        let id = flow.prepare(cloud, up).await;
        let plan = CrashPlan::counting();
        up.succeed(cloud, plan.clone()).await;
        let mut quiet = false;
        let answered = if after == 0 {
            up.restart_nodes(cloud, async |up| flow.act(cloud, up, id.as_deref()).await).await
        } else {
            let answered = flow.act(cloud, up, id.as_deref()).await;
            while plan.writes() < after && !quiet {
                tokio::task::yield_now().await;
                quiet = up.is_quiet().await;
            }
            up.restart_nodes(cloud, async |_| answered).await
        };
        finish(flow, cloud, up, answered, &when).await;
        if quiet {
            break;
        }
        points += 1;
    }
    points
}

async fn finish(flow: &Flow, cloud: &Cloud, up: &Up, answered: bool, when: &str) {
    let servers = up.settle().await;
    up.hosts_have_dropped(cloud).await;
    // The last commit of the dead may be later than the start of their successors, who follow.
    up.compute.world.follow(&cloud.store).await.expect("follows");
    flow.restore(cloud, up, &servers).await;
    flow.judge(&servers, answered, when);
    cloud.sound(up, when).await;
    cloud.sweep(up, when).await;
}
