//! A host that crashes before and after each step. The next agent on the same state must reach the
//! desired state and leave nothing behind.

use kilonova_ids::{ImageId, OperationId, ServerId};
use kilonova_node_api::{Desired, Domain, GuestVerb, Outcome, Power, Rescue, Verb};

use crate::agent::control::Control;
use crate::agent::crashing_host::Death;
use crate::agent::deaths::{at_every_step, deleted_while_down, live_through};
use crate::agent::host::{GPUS, Host, Running, guest, present, uuids, vgpu};

/// The desired states of the server, in order.
fn wishes() -> Vec<(Desired, Outcome, Option<Domain>)> {
    let mut domain = guest("db", vec![vgpu(GPUS[0]), vgpu(GPUS[1])]);
    domain.starts_paused = true;
    let mut wishes = vec![(present(&domain), Outcome::Paused, Some(domain.clone()))];
    domain.starts_paused = false;
    wishes.push((present(&domain), Outcome::Running, Some(domain.clone())));
    for verb in [Verb::RebootSoft, Verb::RebootHard] {
        domain.verb = Some((OperationId::new_v4(), verb));
        wishes.push((present(&domain), Outcome::Running, Some(domain.clone())));
    }
    for (power, outcome) in [
        (Power::Paused, Outcome::Paused),
        (Power::On, Outcome::Running),
        (Power::Suspended, Outcome::Suspended),
        (Power::On, Outcome::Running),
    ] {
        domain.power = power;
        wishes.push((present(&domain), outcome, Some(domain.clone())));
    }
    let image = ImageId::new_v4();
    for rescue in [Some(Rescue { image: Some(image), ..Rescue::default() }), None] {
        domain.config.rescue = rescue;
        wishes.push((present(&domain), Outcome::Running, Some(domain.clone())));
    }
    domain.config.boot.rebuilt = Some(OperationId::new_v4());
    wishes.push((present(&domain), Outcome::Running, Some(domain.clone())));
    for verb in [Verb::Snapshot { image }, Verb::Guest(GuestVerb::CrashDump)] {
        domain.verb = Some((OperationId::new_v4(), verb));
        wishes.push((present(&domain), Outcome::Running, Some(domain.clone())));
    }
    domain.power = Power::Off;
    wishes.push((present(&domain), Outcome::Stopped, Some(domain.clone())));
    domain.power = Power::On;
    wishes.push((present(&domain), Outcome::Running, Some(domain.clone())));
    domain.config.devices = vec![vgpu(GPUS[1]), vgpu(GPUS[1])];
    wishes.push((present(&domain), Outcome::Running, Some(domain.clone())));
    wishes.push((Desired::Absent, Outcome::Absent, None));
    wishes
}

/// Runs all documents with a crash at one step. Returns whether the host survived to the end.
async fn live(death: Death) -> bool {
    let (host, control) = (Host::new(""), Control::new());
    let check = async |node: &Running, server, domain: Option<Domain>| {
        check(node, server, domain.as_ref(), death).await;
    };
    live_through(&host, &control, death, wishes(), check).await
}

async fn check(node: &Running, server: ServerId, domain: Option<&Domain>, death: Death) {
    let is = node.domain(server).await;
    assert_eq!(
        node.mdevs(),
        domain.map(|domain| uuids(&domain.config.devices)).unwrap_or_default(),
        "{death:?}"
    );
    assert_eq!(is.is_some(), domain.is_some(), "{death:?}");
    if let (Some((definition, running)), Some(domain)) = (is, domain) {
        assert_eq!(definition.config.devices, domain.config.devices, "{death:?}");
        assert_eq!(definition.config.rescue, domain.config.rescue, "{death:?}");
        assert_eq!(definition.config.boot, domain.config.boot, "{death:?}");
        assert_eq!(definition.done, domain.verb.map(|(operation, _)| operation), "{death:?}");
        assert_eq!(running, domain.power == Power::On && !domain.starts_paused, "{death:?}");
    }
}

#[tokio::test]
async fn death_before_and_after_every_step() {
    at_every_step(15, live).await;
}

#[tokio::test]
async fn delete_while_the_agent_is_down() {
    let devices = vec![vgpu(GPUS[0]), vgpu(GPUS[1])];
    let check = |node: &Running, death| assert!(node.mdevs().is_empty(), "{death:?}");
    deleted_while_down(|| Host::new(""), 5, devices, check).await;
}
