//! Runs an operation repeatedly, with a crash at another write each time, until a run has no crash.
//!
//! There are three kinds of crash: of everything, of the services alone, and of the agents alone.
//! After the restart every server ends in a state that the operation allows, the ledger's rules hold,
//! hosts and memory agree with the ledger, and after all servers are deleted nothing is left.

use kilonova_compute_app::Options;
use kilonova_store::testing::{CrashPlan, Death};

use super::Flow;
use crate::kit::{Cloud, Up};

/// More writes than any operation has.
const MOST: u64 = 60;
const DEATHS: [Death; 2] = [Death::BeforeCommit, Death::AfterCommit];

pub async fn run(flow: Flow) {
    run_with(flow, Options::default()).await;
}

/// [`run`] with options.
pub async fn run_with(flow: Flow, options: Options) {
    for mut cloud in Cloud::all((flow.topology)()).await {
        cloud.options = options.clone();
        let mut up = cloud.start().await;
        up.wait_for_hosts().await;
        let mut points = 0;
        for everything in [true, false] {
            for at in 0.. {
                assert!(at < MOST, "{}: no end", flow.name);
                let mut died = false;
                for death in DEATHS {
                    let plan = CrashPlan::at(at, death);
                    (up, died) = crash(&flow, &cloud, up, plan, everything, died).await;
                    points += u32::from(died);
                }
                if !died {
                    break;
                }
            }
        }
        points += crash_nodes(&flow, &cloud, &mut up).await;
        assert!(points >= 8, "{}: {points} crash points", flow.name);
        println!("{} on {}: {points} crash points", flow.name, cloud.name);
        up.kill().await;
    }
}

/// One run in which the services, or everything, crash as the plan says. Returns the restarted
/// cloud, and true if this crash or the one before it happened.
async fn crash(
    flow: &Flow,
    cloud: &Cloud,
    mut up: Up,
    plan: CrashPlan,
    everything: bool,
    before: bool,
) -> (Up, bool) {
    let when = format!("{} {plan:?} of {}", flow.name, if everything { "all" } else { "services" });
    let id = flow.prepare(cloud, &up).await;
    if everything {
        up.kill().await;
        up = cloud.start_with_plan(plan.clone()).await;
        up.wait_for_hosts().await;
    } else {
        up.replace_services(cloud, plan.clone()).await;
    }
    let answered = flow.act(cloud, &up, id.as_deref()).await;
    up.wait_all_idle_or_dead().await;
    let died = plan.is_dead();
    cloud.audit(&when).await;
    if everything {
        up.kill().await;
        up = cloud.start().await;
        up.wait_for_hosts().await;
    } else {
        up.replace_services(cloud, CrashPlan::default()).await;
    }
    finish(flow, cloud, &up, answered, &when).await;
    (up, died || before)
}

/// Runs the operation once for each number of writes after which the agents crash.
async fn crash_nodes(flow: &Flow, cloud: &Cloud, up: &mut Up) -> u32 {
    let mut points = 0;
    for after in 0.. {
        let when = format!("{} nodes die after {after} writes", flow.name);
        let id = flow.prepare(cloud, up).await;
        let plan = CrashPlan::counting();
        up.replace_services(cloud, plan.clone()).await;
        let mut quiet = false;
        let answered = if after == 0 {
            up.restart_nodes(cloud, async |up| flow.act(cloud, up, id.as_deref()).await).await
        } else {
            let answered = flow.act(cloud, up, id.as_deref()).await;
            while plan.writes() < after && !quiet {
                tokio::task::yield_now().await;
                quiet = up.all_idle().await;
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
    let servers = up.wait_all_idle().await;
    up.wait_for_host_cleanup(cloud).await;
    // The last commit of the crashed services may follow the start of their successors.
    up.compute.world.follow(&cloud.store).await.expect("the change log is applied");
    flow.undo_side_effects(cloud, up, &servers).await;
    flow.assert_statuses(&servers, answered, when);
    cloud.assert_consistent(up, when).await;
    cloud.teardown(up, when).await;
}
