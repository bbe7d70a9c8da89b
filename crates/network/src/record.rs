//! A stored resource of the network service. Attributes that users set are stored as one JSON map, so that the
//! attribute tables (`ATTRIBUTES` in `app/`) are the only place that lists attributes.

use jiff::Timestamp;
use kilonova_wire::time;
use newtype_uuid::{TypedUuid, TypedUuidKind};
use serde_json::{Map, Value, json};

/// Attributes by name.
pub(crate) type Body = Map<String, Value>;

/// A network, subnet, port, security group, rule, router or floating IP.
#[derive(Debug, Clone)]
pub(crate) struct Record<K: TypedUuidKind> {
    pub id: TypedUuid<K>,
    pub project: String,
    pub body: Body,
    pub revision: i64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl<K: TypedUuidKind> Record<K> {
    pub fn new(project: &str, body: Body, now: Timestamp) -> Self {
        Self {
            id: TypedUuid::new_v4(),
            project: project.to_owned(),
            body,
            revision: 1,
            created_at: now,
            updated_at: now,
        }
    }

    /// The keys that all views share.
    pub fn view(&self) -> Body {
        let mut view = self.body.clone();
        for (key, value) in [
            ("id", json!(self.id)),
            ("tenant_id", json!(self.project)),
            ("project_id", json!(self.project)),
            ("created_at", json!(time::zulu(self.created_at))),
            ("updated_at", json!(time::zulu(self.updated_at))),
            ("revision_number", json!(self.revision)),
        ] {
            view.insert(key.to_owned(), value);
        }
        view
    }

    pub fn text(&self, key: &str) -> &str {
        self.body.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    pub fn flag(&self, key: &str) -> bool {
        self.body.get(key).and_then(Value::as_bool).unwrap_or_default()
    }

    pub fn texts(&self, key: &str) -> Vec<String> {
        let list = self.body.get(key).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(|value| value.as_str().map(str::to_owned)).collect()
    }

    /// Applies an update: merges `set` and increments the revision.
    pub fn change(&mut self, set: Body, now: Timestamp) {
        self.body.extend(set);
        self.revision += 1;
        self.updated_at = now;
    }
}
