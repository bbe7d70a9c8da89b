//! The operations on an existing server: one table with a row for each.
//!
//! The router of `POST /servers/{id}/action`, the state checks ([`super::states`]), the policy
//! ([`super::rules`]), `explain` and docs/server-actions.md read the table. It describes each
//! action and when it is allowed. It must never carry out an action; the handlers and the flows do that.

mod bodies;
mod docs;
mod row;
mod table;

pub use bodies::check_body;
pub use docs::document;
pub use row::{Body, HostRule, Request, Requires, Row, Tasks};
pub use table::ServerAction;

use crate::flows::operation::Action;

impl ServerAction {
    /// The action with this key in the body of `POST /servers/{id}/action`; the first variant if the
    /// action has several.
    pub fn of_key(key: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|action| action.row().key() == Some(key))
    }

    /// The action that the history records as this instance action, or its first variant; `None` for
    /// booting a server and for extending a volume.
    pub fn recorded_as(action: Action) -> Option<Self> {
        Self::ALL.iter().copied().find(|one| one.row().recorded_as == Some(action))
    }
}

/// Number of action keys of `POST /servers/{id}/action`.
const KEYS: usize = {
    let (mut keys, mut at) = (0, 0);
    while at < ServerAction::ALL.len() {
        if matches!(ServerAction::ALL[at].row().request, Request::Body(_)) {
            keys += 1;
        }
        at += 1;
    }
    keys
};

/// The action keys of `POST /servers/{id}/action`, each with its policy rule.
pub const RULE_OF_KEY: [(&str, &str); KEYS] = {
    let mut rules = [("", ""); KEYS];
    let (mut next, mut at) = (0, 0);
    while at < ServerAction::ALL.len() {
        let row = ServerAction::ALL[at].row();
        if let Request::Body(key) = row.request {
            rules[next] = (key, row.rules[0].name);
            next += 1;
        }
        at += 1;
    }
    rules
};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_key_names_one_action() {
        let keys: BTreeSet<&str> = RULE_OF_KEY.iter().map(|(key, _)| *key).collect();
        assert_eq!(keys.len(), RULE_OF_KEY.len(), "a key twice");
        assert_eq!(ServerAction::of_key("reboot"), Some(ServerAction::Reboot));
        assert_eq!(ServerAction::of_key("burn"), None);
    }

    #[test]
    fn the_history_records_every_action_of_a_user_but_the_boot_for_a_row() {
        let without: Vec<Action> = Action::ALL
            .iter()
            .copied()
            .filter(|action| ServerAction::recorded_as(*action).is_none())
            .collect();
        // Only Cinder requests `ExtendVolume`, never a user.
        assert_eq!(without, [Action::Create, Action::ExtendVolume]);
        assert_eq!(ServerAction::recorded_as(Action::Reboot), Some(ServerAction::Reboot));
        assert_eq!(ServerAction::RebootHard.row().recorded_as, Some(Action::Reboot));
    }

    #[test]
    fn the_document_is_that_of_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/server-actions.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, document()).expect("docs/server-actions.md is written");
        }
        let kept = std::fs::read_to_string(path).expect("docs/server-actions.md exists");
        assert!(
            kept == document(),
            "run `UPDATE_DOCS=1 cargo nextest run -p kilonova-compute-app actions`"
        );
    }
}
