//! An agent that dies at one step, and the next agent on the same state.

use std::sync::Arc;

use kilonova_ids::ServerId;
use kilonova_node_api::{Attachment, Desired, Outcome};

use crate::agent::control::Control;
use crate::agent::crashing_host::{Death, Doom};
use crate::agent::host::{Host, Running, guest, present};

/// Brings a server into each of these states, with a death at one step, and checks each. Returns whether the agent
/// survived to the end.
pub async fn live_through<T>(
    host: &Host,
    control: &Arc<Control>,
    death: Death,
    wishes: Vec<(Desired, Outcome, T)>,
    check: impl AsyncFn(&Running, ServerId, T),
) -> bool {
    let doom = Doom::new(Some(death));
    let (mut node, mut lived) = (host.run_doomed(control, &doom), true);
    let server = ServerId::new_v4();
    for (desired, outcome, wish) in wishes {
        let generation = control.want(server, desired);
        if lived {
            tokio::select! {
                () = control.expect(generation, outcome.clone()) => {}
                () = doom.died() => {
                    lived = false;
                    node.kill().await;
                    doom.bury();
                    node = host.run(control);
                }
            }
        }
        control.expect(generation, outcome).await;
        check(&node, server, wish).await;
    }
    node.stop().await;
    host.assert_empty(&format!("after {death:?}"));
    let failed = control.with(|state| {
        let outcomes = state.observations.iter().map(|one| one.outcome.clone());
        outcomes.into_iter().find(|one| matches!(one, Outcome::Failed { .. }))
    });
    assert_eq!(failed, None, "{death:?}");
    lived
}

/// Runs `live` with a death before and after every step, and checks that there are at least `least`
/// steps.
pub async fn at_every_step(least: usize, live: impl AsyncFn(Death) -> bool) {
    for after in [false, true] {
        let mut step = 0;
        while !live(Death { step, after }).await {
            step += 1;
        }
        assert!(step >= least, "there are only {step} steps, but at least {least} are expected");
    }
}

/// A guest with these devices is deleted after the agent has died at one of its first steps.
pub async fn deleted_while_down(
    host: impl Fn() -> Host,
    steps: usize,
    devices: Vec<Attachment>,
    check: impl Fn(&Running, Death),
) {
    let deaths = (0..steps).flat_map(|step| [false, true].map(|after| Death { step, after }));
    for death in deaths {
        let (host, control) = (host(), Control::new());
        let doom = Doom::new(Some(death));
        let node = host.run_doomed(&control, &doom);
        let server = ServerId::new_v4();
        control.want(server, present(&guest("db", devices.clone())));
        doom.died().await;
        node.kill().await;
        doom.bury();
        let generation = control.want(server, Desired::Absent);
        let node = host.run(&control);
        control.expect(generation, Outcome::Absent).await;
        check(&node, death);
        node.stop().await;
        host.assert_empty(&format!("after {death:?}"));
    }
}
