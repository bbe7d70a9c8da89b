//! What is to be done about one guest of a host that is to be empty. Pure.

use super::guest::Guest;

/// What the operator allows.
#[derive(Debug, Clone, Copy, Default)]
pub struct Allowed {
    /// To shut off, move and start again what cannot move while it runs.
    pub cold: bool,
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Move it while it runs.
    Live,
    /// Move it shut off; a running one is started again there.
    Cold,
    /// It has moved: give the old place up.
    Confirm,
    /// It is shelved: have it leave the host.
    Offload,
    /// Something is under way, in words.
    Wait(String),
    /// It stays.
    Stays(Why),
}

/// Why a server stays, and what its owner or the operator can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    /// Why.
    pub why: String,
    /// What to do.
    pub remedy: String,
}

fn stays(why: impl Into<String>, remedy: impl Into<String>) -> Step {
    Step::Stays(Why { why: why.into(), remedy: remedy.into() })
}

/// What is to be done about a guest of `host`, which is up or not.
pub fn decide(host: &str, up: bool, guest: &Guest, allowed: Allowed) -> Step {
    let id = &guest.id;
    if let Some(operation) = &guest.operation {
        if !up {
            let what = operation.waits_for.as_deref().unwrap_or("the host");
            let why = format!("its {} waits for {what}, and the host is down", operation.action);
            return stays(why, format!("kilonova server explain {id}"));
        }
        let waits = operation.waits_for.as_deref().unwrap_or("its end");
        return Step::Wait(format!("{}: waits for {waits}", operation.action));
    }
    if guest.host.as_deref() != Some(host) {
        return elsewhere(host, up, guest);
    }
    if !up {
        return stays(
            "its host is down",
            format!(
                "start the agent of {host}; if the host is lost: openstack server evacuate {id}"
            ),
        );
    }
    match guest.vm_state.as_deref().unwrap_or_default() {
        "active" => match &guest.cannot_move_running {
            None => Step::Live,
            Some(_) if allowed.cold => Step::Cold,
            Some(address) => stays(
                format!("its device {address} is given to it whole and cannot move while it runs"),
                "drain again with --cold: it is shut off, moved and started again",
            ),
        },
        "paused" => match &guest.cannot_move_running {
            None => Step::Live,
            Some(address) => stays(
                format!("it is paused, and its device {address} is given to it whole"),
                format!("openstack server unpause {id}, then drain again with --cold"),
            ),
        },
        "stopped" => Step::Cold,
        "shelved" => Step::Offload,
        "suspended" => stays(
            "it is suspended, and the memory on disk cannot go along",
            format!("openstack server resume {id}, then drain again"),
        ),
        "rescued" => {
            stays("it is being mended", format!("openstack server unrescue {id}, then drain again"))
        }
        "resized" => stays(
            "it waits for its owner to confirm or revert a resize",
            format!("openstack server resize confirm {id} (or revert), then drain again"),
        ),
        "soft-delete" => stays(
            "it is deleted and can still be restored",
            format!("openstack server delete --force {id}, or openstack server restore {id}"),
        ),
        "error" => stays(
            "it is in ERROR",
            format!(
                "kilonova server explain {id}; openstack server reboot --hard {id} or delete it"
            ),
        ),
        other => stays(format!("it is {other}"), format!("kilonova server explain {id}")),
    }
}

/// What is here of a server that is on another host, or on none.
fn elsewhere(host: &str, up: bool, guest: &Guest) -> Step {
    let id = &guest.id;
    if let Some(open) = guest.open_move.as_ref().filter(|open| open.source == host)
        && guest.vm_state.as_deref() == Some("resized")
        && open.status == "finished"
    {
        if open.kind == "migration" {
            return Step::Confirm;
        }
        return stays(
            "it was resized, and its old place is kept here until its owner confirms",
            format!("openstack server resize confirm {id} (or revert)"),
        );
    }
    if up {
        return Step::Wait("the host is to remove what it has of it".to_owned());
    }
    stays(
        "what is left of it is removed when the host is back",
        "start the agent of the host".to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::super::guest::{Move, Operation};
    use super::*;

    fn guest(state: &str) -> Guest {
        Guest {
            id: "u".into(),
            vm_state: Some(state.into()),
            host: Some("a".into()),
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
    fn what_runs_moves_running_and_what_is_off_moves_off() {
        let ask = |one: &Guest, cold| decide("a", true, one, Allowed { cold });
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
            let said = why(ask(&guest(state), true));
            assert!(said.contains(word), "{said}");
        }
    }

    #[test]
    fn a_move_that_was_begun_is_gone_on_with_and_a_resize_is_its_owners() {
        let kept = |kind: &str| Guest {
            host: Some("b".into()),
            open_move: Some(Move {
                kind: kind.into(),
                status: "finished".into(),
                source: "a".into(),
            }),
            ..guest("resized")
        };
        let ask = |one: &Guest, up| decide("a", up, one, Allowed::default());
        assert_eq!(ask(&kept("migration"), true), Step::Confirm);
        assert_eq!(ask(&kept("migration"), false), Step::Confirm);
        assert!(why(ask(&kept("resize"), true)).contains("its owner confirms"));
        let gone = Guest { host: None, ..guest("active") };
        assert!(why(ask(&gone, true)).contains("Wait"));
        assert!(why(ask(&gone, false)).contains("when the host is back"));
    }

    #[test]
    fn what_is_under_way_is_waited_for_unless_the_host_is_down() {
        let busy = Guest {
            operation: Some(Operation {
                action: "reboot".into(),
                waits_for: Some("host a to restart the guest".into()),
            }),
            ..guest("active")
        };
        let said = why(decide("a", true, &busy, Allowed::default()));
        assert!(said.contains("reboot: waits for host a"), "{said}");
        let said = why(decide("a", false, &busy, Allowed::default()));
        assert!(said.contains("the host is down") && said.contains("explain u"), "{said}");
        let said = why(decide("a", false, &guest("active"), Allowed { cold: true }));
        assert!(said.contains("evacuate u"), "{said}");
    }
}
