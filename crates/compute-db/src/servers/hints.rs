//! Scheduler hints: typed values for the hints that the scheduler reads, and all hints as the client sent them.
//!
//! A row keeps the hints as sent, after the request's schema has accepted them. Rows of earlier
//! builds may have ids that are not UUIDs; these are ignored.

use kilonova_ids::{ServerGroupId, ServerId, parse_uuid_like};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The scheduler hints of a server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Map<String, Value>", into = "Map<String, Value>")]
pub struct SchedulerHints {
    /// The server group to join.
    pub group: Option<ServerGroupId>,
    /// Servers whose hosts are allowed.
    pub same_host: Option<Vec<ServerId>>,
    /// Servers whose hosts are excluded.
    pub different_host: Option<Vec<ServerId>>,
    sent: Map<String, Value>,
}

impl SchedulerHints {
    /// All hints as sent.
    pub fn as_sent(&self) -> &Map<String, Value> {
        &self.sent
    }
}

impl From<Map<String, Value>> for SchedulerHints {
    fn from(sent: Map<String, Value>) -> Self {
        Self {
            group: sent.get("group").and_then(Value::as_str).and_then(parse_uuid_like),
            same_host: sent.get("same_host").map(servers),
            different_host: sent.get("different_host").map(servers),
            sent,
        }
    }
}

impl From<SchedulerHints> for Map<String, Value> {
    fn from(hints: SchedulerHints) -> Self {
        hints.sent
    }
}

/// One id or a list of ids.
fn servers(hint: &Value) -> Vec<ServerId> {
    let one = hint.as_str().into_iter();
    let several = hint.as_array().into_iter().flatten().filter_map(Value::as_str);
    one.chain(several).filter_map(parse_uuid_like).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hints_are_read_and_kept_as_sent() {
        let (group, server) = (ServerGroupId::new_v4(), ServerId::new_v4());
        let sent = json!({"group": group, "same_host": server, "different_host": [server, "x"],
            "query": "[\">=\", \"$free_ram_mb\", 1024]"});
        let hints: SchedulerHints =
            serde_json::from_value(sent.clone()).expect("the hints are an object");
        assert_eq!(hints.group, Some(group));
        assert_eq!(hints.same_host, Some(vec![server]));
        assert_eq!(hints.different_host, Some(vec![server]));
        assert_eq!(serde_json::to_value(&hints).expect("hints are JSON"), sent);
        let none: SchedulerHints =
            serde_json::from_value(json!({})).expect("the hints are an object");
        assert_eq!(none, SchedulerHints::default());
        assert!(serde_json::from_value::<SchedulerHints>(json!(1)).is_err());
    }
}
