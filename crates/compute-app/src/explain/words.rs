//! Describes the event for which an operation waits.

use kilonova_compute_db::moves::Move;
use kilonova_flow as flow;

use crate::actions::ServerAction;
use crate::flows::operation::{
    ColdMigration, Create, Delete, Evacuation, InPlace, InPlaceChange, InPlaceStep, LiveMigration,
    Operation, Revert, Unshelve,
};
use kilonova_ids::HostName;

/// The awaited event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Awaited {
    /// The host whose report continues the operation.
    pub host: Option<HostName>,
    /// The action expected of that host; without a host, the whole event.
    pub what: String,
}

impl Awaited {
    /// The event as text, such as `host gpu-1 to start the guest`.
    pub fn text(&self) -> String {
        match &self.host {
            Some(host) => format!("host {host} to {}", self.what),
            None => self.what.clone(),
        }
    }
}

/// Why an action failed: its own message, or the details of its last failed event.
pub(crate) fn failure<'a>(
    action: &'a flow::Operation,
    events: &'a [flow::Event],
) -> Option<&'a str> {
    let failed = |event: &&flow::Event| event.result.as_deref() == Some("Error");
    let mut details = events.iter().filter(failed).filter_map(|event| event.details.as_deref());
    action.message.as_deref().or(details.next_back())
}

/// The state of an open operation, or why this version cannot read it.
pub(super) fn state_of(open: Option<&flow::Operation>) -> (Option<Operation>, Option<String>) {
    match open.map(|one| Operation::read(&one.kind, &one.step, &one.data)) {
        None => (None, None),
        Some(Ok(state)) => (Some(state), None),
        Some(Err(why)) => (None, Some(why.to_string())),
    }
}

/// The event that an open operation waits for. The hosts in `removing` still have to remove the
/// guest, and the hosts in `lacking` wait until Cinder has connected the volumes. The guest on
/// `plugging` is paused until its ports are plugged.
pub fn awaited(
    state: &Operation,
    own: Option<&HostName>,
    open: Option<&Move>,
    removing: &[HostName],
    lacking: &[HostName],
    plugging: Option<&HostName>,
) -> Awaited {
    if let Some(host) = plugging {
        return Awaited { host: Some(host.clone()), what: PLUG.to_owned() };
    }
    let source = open.map(|one| &one.source);
    let dest = open.and_then(|one| one.dest.as_ref());
    let removing = removing.first().or(own);
    let (host, what) = match state {
        Operation::Create(create) => match create {
            Create::Wait { .. } => (None, "moves that make room for it".to_owned()),
            Create::Spawn { .. } => (own, "start the guest with all its devices".to_owned()),
            Create::Plug { .. } => (own, PLUG.to_owned()),
            Create::Clear { .. } => (removing, CLEAR.to_owned()),
        },
        Operation::Delete(Delete::Destroy { .. }) => {
            (removing, "remove the guest, its disk and its mediated devices".to_owned())
        }
        Operation::Delete(Delete::Release { .. }) => {
            (None, "Neutron and Cinder to release its ports and volumes".to_owned())
        }
        Operation::Power(_) => (own, settling(state).to_owned()),
        Operation::InPlace(InPlace { step: InPlaceStep::Undo { .. }, .. }) => {
            (own, "restore the guest to its previous state".to_owned())
        }
        Operation::InPlace(InPlace { step: InPlaceStep::Reimage, .. }) => {
            let what = "shut the guest off and release its root volume, whose data Cinder replaces";
            (own, what.to_owned())
        }
        Operation::InPlace(InPlace { step: InPlaceStep::Settle, .. }) => {
            (own, settling(state).to_owned())
        }
        Operation::Offload(_) => (removing, CLEAR.to_owned()),
        Operation::Unshelve(unshelve) => match unshelve {
            Unshelve::Spawn(_) => (own, "start the guest with all its devices".to_owned()),
            Unshelve::Clear(_) => (removing, CLEAR.to_owned()),
        },
        Operation::Resize(cold) | Operation::Migrate(cold) => match cold {
            ColdMigration::Begin => (own, BEGIN.to_owned()),
            ColdMigration::StopSource(_) => {
                (source, "shut the guest off, so that it can move".to_owned())
            }
            ColdMigration::MakeDest(_) => (dest, MAKE_DEST.to_owned()),
            ColdMigration::DropDest(_) => (dest, DROP_DEST.to_owned()),
            ColdMigration::Restore(_) => (source, RESTORE.to_owned()),
        },
        Operation::Revert(revert) => match revert {
            Revert::Begin => (own, BEGIN.to_owned()),
            Revert::AskSource(_) => (source, "report that it still has the guest".to_owned()),
            Revert::DropDest(_) => (dest, DROP_DEST.to_owned()),
            Revert::Restore(_) => (source, RESTORE.to_owned()),
        },
        Operation::Evacuate(evacuation) => match evacuation {
            Evacuation::Begin => (own, BEGIN.to_owned()),
            Evacuation::MakeDest(_) => (dest, MAKE_DEST.to_owned()),
            Evacuation::DropDest(_) => (dest, DROP_DEST.to_owned()),
        },
        Operation::LiveMigration(live) => match live {
            LiveMigration::Begin => (own, BEGIN.to_owned()),
            LiveMigration::Queued(_) => {
                (source, "migrate other guests first (max_concurrent_live_migrations)".to_owned())
            }
            LiveMigration::Receive(_) => (dest, "prepare for the incoming migration".to_owned()),
            LiveMigration::Transfer(_) => {
                (source, sending(open, dest.map_or("the new host", HostName::as_str)))
            }
            LiveMigration::Abort(_) => {
                (source, "abort the migration, and report whether it has the guest".to_owned())
            }
            LiveMigration::Locate(_) => (dest, "report whether the guest has arrived".to_owned()),
            LiveMigration::Arrive(_) => (dest, "complete the migration".to_owned()),
            LiveMigration::DropDest(_) => (dest, DROP_DEST.to_owned()),
            LiveMigration::Restore(_) => (source, RESTORE.to_owned()),
        },
        Operation::Recorded(action) => (own, format!("finish {action}")),
    };
    match host.filter(|host| lacking.contains(host)) {
        Some(host) => Awaited { host: None, what: connecting(host) },
        None => Awaited { host: host.cloned(), what },
    }
}

/// The event awaited from Cinder: a host receives the guest's document only after all volumes are
/// connected.
pub(super) fn connecting(host: &HostName) -> String {
    format!("Cinder to connect its volumes to host {host}")
}

const BEGIN: &str = "finish step begin";
const PLUG: &str = "receive Neutron's events that the ports of its guest are plugged";
const CLEAR: &str = "report that the guest is removed";
const MAKE_DEST: &str = "define the guest there with its devices";
const DROP_DEST: &str = "remove the guest, because the move failed";
const RESTORE: &str = "restore the guest to its state before the move";

/// The host's part in the action, from the table of actions.
fn settling(state: &Operation) -> &'static str {
    if let Operation::InPlace(InPlace { change: InPlaceChange::SoftDelete, .. }) = state {
        return "shut the guest off, so that it can be restored";
    }
    let action = ServerAction::recorded_as(state.action());
    let does = action.and_then(|action| action.row().host_does);
    does.unwrap_or("reconcile the guest")
}

fn sending(open: Option<&Move>, to: &str) -> String {
    match open.and_then(|one| one.progress).filter(|progress| progress.memory_total > 0) {
        None => format!("migrate the running guest to {to}"),
        Some(progress) => {
            let (all, left) = (progress.memory_total, progress.memory_remaining);
            let done = (all.saturating_sub(left)).saturating_mul(100) / all;
            format!("migrate the running guest to {to} ({done} % of its memory is transferred)")
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use kilonova_ids::{OperationId, ServerId};
    use serde_json::json;

    use super::*;

    fn state(kind: &str, step: &str) -> Operation {
        Operation::read(kind, step, &json!({})).expect("the operation is valid")
    }

    #[test]
    fn a_failure_is_told_by_the_action_or_by_its_last_event_that_failed() {
        let event = |result: &str, details: &str| flow::Event {
            name: "compute_stop_instance".to_owned(),
            host: None,
            result: Some(result.to_owned()),
            details: Some(details.to_owned()),
            started_at: Timestamp::UNIX_EPOCH,
            finished_at: None,
        };
        let events = [event("Error", "first"), event("Error", "last"), event("Success", "fine")];
        let mut action = flow::Operation {
            id: OperationId::nil(),
            kind: "stop".to_owned(),
            subject: ServerId::nil(),
            request_id: String::new(),
            project_id: String::new(),
            user_id: String::new(),
            step: "settle".to_owned(),
            version: 0,
            data: json!({}),
            outcome: flow::Outcome::Failed,
            message: None,
            created_at: Timestamp::UNIX_EPOCH,
            updated_at: Timestamp::UNIX_EPOCH,
        };
        assert_eq!(failure(&action, &[]), None);
        assert_eq!(failure(&action, &events), Some("last"));
        action.message = Some("its own".to_owned());
        assert_eq!(failure(&action, &events), Some("its own"));
    }

    #[test]
    fn every_step_says_which_host_does_what() {
        let [a, b, c] = ["a", "b", "c"].map(HostName::verbatim);
        let text = |kind, step| awaited(&state(kind, step), Some(&a), None, &[], &[], None).text();
        assert_eq!(text("create", "spawn"), "host a to start the guest with all its devices");
        assert_eq!(text("stop", "settle"), "host a to shut the guest off");
        assert_eq!(text("live-migration", "transfer"), "migrate the running guest to the new host");
        let of = state("delete", "destroy");
        assert!(
            awaited(&of, Some(&a), None, &[b.clone(), c], &[], None)
                .text()
                .starts_with("host b to remove")
        );
        let spawn = state("create", "spawn");
        let waits = |lacking: &[HostName]| awaited(&spawn, Some(&a), None, &[], lacking, None);
        assert_eq!(
            waits(std::slice::from_ref(&b)).host.as_ref(),
            Some(&a),
            "another host lacks them"
        );
        let waits = waits(std::slice::from_ref(&a));
        assert_eq!(waits.text(), "Cinder to connect its volumes to host a");
        assert_eq!(waits.host, None, "the host does not know of the guest");
        let settle = state("reboot", "settle");
        assert_eq!(
            awaited(&settle, Some(&a), None, &[], &[], Some(&b)).text(),
            "host b to receive Neutron's events that the ports of its guest are plugged"
        );
    }
}
