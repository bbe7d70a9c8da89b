//! Decides the next step for one guest of a host that is being drained. Pure.

use kilonova_compute_db::drains::Progress;
use kilonova_ids::HostName;

use super::guest::{Guest, MoveKind, MoveStatus, VmState};

/// The remedy for a running server that cannot live-migrate, worded for every client.
const COLD: &str = "allow cold moves (--cold, or the checkbox in the dashboard) and drain again";

/// The remedy for an operation that this controller cannot read.
const UNREAD: &str = "kilonova doctor; if another version of kilonova wrote it, upgrade all controllers, then drain again";

/// The operator's permissions.
#[derive(Debug, Clone, Copy, Default)]
pub struct Allowed {
    /// True if servers that cannot live-migrate may be stopped, moved and restarted.
    pub cold: bool,
}

/// The next step for a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Live-migrate it.
    Live,
    /// Cold-migrate it; a running server is started again at the destination.
    Cold,
    /// Confirm its finished migration.
    Confirm,
    /// Offload it; it is shelved.
    Offload,
    /// Wait for an operation.
    Wait(String),
    /// It stays.
    Stays(Why),
}

/// Why a server stays, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    /// The reason.
    pub why: String,
    /// The remedy.
    pub remedy: String,
}

fn stays(why: impl Into<String>, remedy: impl Into<String>) -> Step {
    Step::Stays(Why { why: why.into(), remedy: remedy.into() })
}

/// The next action of a drain for a guest, given the progress of the guest's move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// The drain requests this step.
    Request(Step),
    /// The drain waits for an operation.
    Wait(String),
    /// The guest stays.
    Stays(Why),
    /// The requested move has ended and the guest is still here, so the move failed.
    Failed,
}

/// Applies [`decide`], and takes the progress of the guest's move into account. A move that failed
/// is not requested again.
pub fn next(
    host: &HostName,
    up: bool,
    guest: &Guest,
    allowed: Allowed,
    progress: Option<&Progress>,
) -> Next {
    match (decide(host, up, guest, allowed), progress) {
        (Step::Wait(what), _) => Next::Wait(what),
        (Step::Stays(why), _) => Next::Stays(why),
        (_, Some(Progress::Failed(why))) => Next::Stays(Why {
            why: why.clone(),
            remedy: format!("kilonova server explain {}, then drain again", guest.id),
        }),
        (Step::Live | Step::Cold | Step::Offload, Some(Progress::Requested)) => Next::Failed,
        (step @ (Step::Live | Step::Cold | Step::Offload | Step::Confirm), _) => {
            Next::Request(step)
        }
    }
}

/// The next step for a guest of `host`; `up` is true if the host is up.
pub fn decide(host: &HostName, up: bool, guest: &Guest, allowed: Allowed) -> Step {
    let id = &guest.id;
    if let Some(operation) = &guest.operation {
        if let Some(why) = operation.unread() {
            return stays(why, UNREAD);
        }
        if !up {
            let what = operation.waits_for.as_deref().unwrap_or("the host");
            let why = format!("its {} waits for {what}, but the host is down", operation.action);
            return stays(why, format!("kilonova server explain {id}"));
        }
        let waits = operation.waits_for.as_deref().unwrap_or("completion");
        return Step::Wait(format!("{} in progress, waits for {waits}", operation.action));
    }
    if guest.host.as_ref() != Some(host) {
        return elsewhere(host, up, guest);
    }
    if !up {
        return stays(
            "its host is down",
            format!(
                "start the agent of {host}; if the host does not return: openstack server evacuate {id}"
            ),
        );
    }
    let Some(state) = &guest.vm_state else {
        return stays("its state is unknown", format!("kilonova server explain {id}"));
    };
    let is_unconfirmed =
        guest.open_move.as_ref().is_some_and(|open| open.status == MoveStatus::Finished);
    match state {
        // `os-resetState` has replaced the state `RESIZED`: every move is refused until the end of the migration, which
        // its owner or an operator decides, as upstream.
        VmState::Active | VmState::Stopped if is_unconfirmed => stays(
            "its resize or migration to this host waits to be confirmed or reverted",
            format!("openstack server resize confirm {id} (or revert), then drain again"),
        ),
        VmState::Paused if is_unconfirmed => stays(
            "it is paused, and its resize or migration to this host waits to be confirmed or reverted",
            format!(
                "openstack server unpause {id}, openstack server resize confirm {id} (or revert), then drain again"
            ),
        ),
        VmState::Active => match &guest.cannot_move_running {
            None => Step::Live,
            Some(_) if allowed.cold => Step::Cold,
            Some(address) => stays(
                format!("its device {address} is passed through whole and cannot live-migrate"),
                format!("{COLD}; this stops, moves and restarts it"),
            ),
        },
        VmState::Paused => match &guest.cannot_move_running {
            None => Step::Live,
            Some(address) => stays(
                format!("it is paused, and its device {address} is passed through whole"),
                format!("openstack server unpause {id}, then {COLD}"),
            ),
        },
        VmState::Stopped => Step::Cold,
        VmState::Shelved => Step::Offload,
        VmState::Suspended => stays(
            "it is suspended, and its saved memory cannot be migrated",
            format!("openstack server resume {id}, then drain again"),
        ),
        VmState::Rescued => {
            stays("it is in rescue", format!("openstack server unrescue {id}, then drain again"))
        }
        VmState::Resized => stays(
            "it waits for its owner to confirm or revert a resize",
            format!("openstack server resize confirm {id} (or revert), then drain again"),
        ),
        VmState::SoftDeleted => stays(
            "it is soft-deleted and can still be restored",
            format!("openstack server delete --force {id}, or openstack server restore {id}"),
        ),
        VmState::Error => stays(
            "it is in ERROR",
            format!(
                "kilonova server explain {id}; openstack server reboot --hard {id} or delete it"
            ),
        ),
        VmState::Other(other) => {
            stays(format!("it is {other}"), format!("kilonova server explain {id}"))
        }
    }
}

/// The next step for a server that is on another host, or on none, and has remains here.
fn elsewhere(host: &HostName, up: bool, guest: &Guest) -> Step {
    let id = &guest.id;
    if let Some(open) = guest.open_move.as_ref().filter(|open| open.source == *host)
        && open.status == MoveStatus::Finished
    {
        // As `flows::allow_end`: `os-resetState` may have replaced the state `RESIZED`.
        let may_confirm = matches!(
            guest.vm_state,
            Some(VmState::Resized | VmState::Active | VmState::Stopped | VmState::Error)
        );
        if open.kind == MoveKind::Migration && may_confirm {
            return Step::Confirm;
        }
        return stays(
            "it was resized, and its source is kept here until its owner confirms",
            format!("openstack server resize confirm {id} (or revert)"),
        );
    }
    if up {
        return Step::Wait("the host removes its remains".to_owned());
    }
    stays(
        "its remains are removed when the host is up again",
        "start the agent of the host".to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::super::guest::{Action, Move, Operation};
    use super::*;

    fn host(name: &str) -> HostName {
        HostName::verbatim(name)
    }

    fn guest(state: &str) -> Guest {
        Guest {
            id: "u".into(),
            vm_state: serde_json::from_value(state.into()).ok(),
            host: Some(host("a")),
            ..Guest::default()
        }
    }

    fn why(step: Step) -> String {
        match step {
            Step::Stays(why) => format!("{}|{}", why.why, why.remedy),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn running_guests_migrate_live_and_stopped_ones_cold() {
        let ask = |one: &Guest, cold| decide(&host("a"), true, one, Allowed { cold });
        assert_eq!(ask(&guest("active"), false), Step::Live);
        assert_eq!(ask(&guest("paused"), true), Step::Live);
        assert_eq!(ask(&guest("stopped"), false), Step::Cold);
        assert_eq!(ask(&guest("shelved"), false), Step::Offload);
        let whole = |state| Guest { cannot_move_running: Some("0:1".into()), ..guest(state) };
        assert!(why(ask(&whole("active"), false)).contains("0:1"));
        assert!(why(ask(&whole("active"), false)).contains("--cold"));
        assert_eq!(ask(&whole("active"), true), Step::Cold);
        assert_eq!(ask(&whole("stopped"), false), Step::Cold);
        assert!(why(ask(&whole("paused"), true)).contains("unpause u"));
        for (state, word) in [
            ("suspended", "resume u"),
            ("rescued", "unrescue u"),
            ("resized", "resize confirm u"),
            ("soft-delete", "restore u"),
            ("error", "explain u"),
            ("building", "it is building"),
        ] {
            let explanation = why(ask(&guest(state), true));
            assert!(explanation.contains(word), "{explanation}");
        }
    }

    #[test]
    fn a_finished_migration_is_confirmed_but_a_resize_is_left_to_its_owner() {
        let kept = |kind: MoveKind| Guest {
            host: Some(host("b")),
            open_move: Some(Move { kind, status: MoveStatus::Finished, source: host("a") }),
            ..guest("resized")
        };
        let ask = |one: &Guest, up| decide(&host("a"), up, one, Allowed::default());
        assert_eq!(ask(&kept(MoveKind::Migration), true), Step::Confirm);
        assert_eq!(ask(&kept(MoveKind::Migration), false), Step::Confirm);
        assert!(why(ask(&kept(MoveKind::Resize), true)).contains("its owner confirms"));
        // `os-resetState` has replaced the state.
        for state in ["active", "stopped", "error"] {
            let reset = |kind| Guest { vm_state: guest(state).vm_state, ..kept(kind) };
            assert_eq!(ask(&reset(MoveKind::Migration), true), Step::Confirm, "{state}");
            let explanation = why(ask(&reset(MoveKind::Resize), true));
            assert!(explanation.contains("its owner confirms"), "{state}: {explanation}");
        }
        // A confirmation would be refused.
        let deleted =
            Guest { vm_state: guest("soft-delete").vm_state, ..kept(MoveKind::Migration) };
        assert!(why(ask(&deleted, true)).contains("its owner confirms"));
        let gone = Guest { host: None, ..guest("active") };
        assert!(why(ask(&gone, true)).contains("Wait"));
        assert!(why(ask(&gone, false)).contains("when the host is up again"));
    }

    #[test]
    fn a_reset_server_at_its_destination_stays_until_its_migration_ends() {
        for kind in [MoveKind::Migration, MoveKind::Resize] {
            for (source, state) in
                [("b", "active"), ("b", "stopped"), ("b", "paused"), ("a", "active")]
            {
                let open = |status| Some(Move { kind, status, source: host(source) });
                let reset = Guest { open_move: open(MoveStatus::Finished), ..guest(state) };
                for cannot_move_running in [None, Some("0:1".to_owned())] {
                    let reset = Guest { cannot_move_running, ..reset.clone() };
                    for cold in [false, true] {
                        let step = decide(&host("a"), true, &reset, Allowed { cold });
                        let explanation = why(step);
                        assert!(explanation.contains("waits to be confirmed"), "{explanation}");
                        assert!(explanation.contains("resize confirm u"), "{explanation}");
                    }
                }
                let other = MoveStatus::Other("error".into());
                let other = Guest { open_move: open(other), ..guest(state) };
                let step = decide(&host("a"), true, &other, Allowed::default());
                assert!(matches!(step, Step::Live | Step::Cold), "{state}: {step:?}");
            }
        }
    }

    #[test]
    fn a_move_that_ended_here_has_failed_and_is_not_requested_again() {
        let ask = |one: &Guest, progress: Option<Progress>| {
            next(&host("a"), true, one, Allowed::default(), progress.as_ref())
        };
        let one = guest("active");
        assert_eq!(ask(&one, None), Next::Request(Step::Live));
        assert_eq!(ask(&one, Some(Progress::Refused("busy".into()))), Next::Request(Step::Live));
        assert_eq!(ask(&one, Some(Progress::Requested)), Next::Failed);
        let Next::Stays(why) = ask(&one, Some(Progress::Failed("no host".into()))) else {
            panic!("it moves again");
        };
        assert_eq!(why.why, "no host");
        // A state that keeps the guest here takes precedence over an earlier failure.
        let Next::Stays(why) = ask(&guest("rescued"), Some(Progress::Failed("no host".into())))
        else {
            panic!("it moves");
        };
        assert_eq!(why.why, "it is in rescue");
        let operation =
            Operation { action: Action::LiveMigration, waits_for: None, unreadable: None };
        let moving = Guest { operation: Some(operation), ..one };
        assert!(matches!(ask(&moving, Some(Progress::Requested)), Next::Wait(_)));
        let kept = Guest {
            host: Some(host("b")),
            open_move: Some(Move {
                kind: MoveKind::Migration,
                status: MoveStatus::Finished,
                source: host("a"),
            }),
            ..guest("resized")
        };
        assert_eq!(ask(&kept, Some(Progress::Requested)), Next::Request(Step::Confirm));
        assert!(matches!(ask(&kept, Some(Progress::Failed("no".into()))), Next::Stays(_)));
    }

    #[test]
    fn operations_are_awaited_unless_the_host_is_down() {
        let busy = Guest {
            operation: Some(Operation {
                action: Action::Other("reboot".into()),
                waits_for: Some("host a to restart the guest".into()),
                unreadable: None,
            }),
            ..guest("active")
        };
        let explanation = why(decide(&host("a"), true, &busy, Allowed::default()));
        assert!(explanation.contains("reboot in progress, waits for host a"), "{explanation}");
        let explanation = why(decide(&host("a"), false, &busy, Allowed::default()));
        assert!(
            explanation.contains("the host is down") && explanation.contains("explain u"),
            "{explanation}"
        );
        let unread = Guest {
            operation: Some(Operation {
                action: Action::LiveMigration,
                waits_for: None,
                unreadable: Some("unknown step \"sleep\"".into()),
            }),
            ..guest("active")
        };
        for up in [true, false] {
            let explanation = why(decide(&host("a"), up, &unread, Allowed::default()));
            assert!(explanation.contains("cannot be read by this controller: unknown step"));
            assert!(explanation.contains("|kilonova doctor"), "{explanation}");
        }
        assert!(!unread.is_moving(), "it does not count as a move");
        let explanation = why(decide(&host("a"), false, &guest("active"), Allowed { cold: true }));
        assert!(explanation.contains("evacuate u"), "{explanation}");
    }
}
