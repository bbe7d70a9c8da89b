//! Replays the requests of a stock client to a real Nova in the same order, and expects the same
//! status, the same keys in the responses, and responses that conform to the document. Skipped if
//! the recording is not next to the repository.

use std::collections::{BTreeMap, BTreeSet};

use kilonova_wire_tests::{Document, Side};
use serde_json::{Value, json};

use crate::compute::api::{ADMIN, exchange};
use crate::compute::cloud::{Cloud, clouds_of};
use crate::compute::recording::{Recorded, recording};

/// The hosts of the recorded cloud.
const HOSTS: [&str; 4] = ["compute1", "compute2", "compute3", "compute9"];

/// Expected differences: a part of `METHOD path`, the difference, the reason.
const DIFFERENT: &[(&str, &str, &str)] = &[
    ("(server event show", "/events has 0 items, not 1", "lock and unlock happen only in the API"),
    ("(server delete", "404, not 200", "deleted before the client asks again"),
    ("(server group delete", "/members has 0 items, not 1", "deleted before the client asks"),
    ("(server migrate --live-migration", "202, not 409", "the recorded cloud could not do it"),
    ("(server evacuate ev2", "200, not 400", "the recorded cloud could not do it"),
    (
        "(server migration list --type evacuation",
        "has 1 items, not 0",
        "the recorded cloud could not evacuate",
    ),
    ("(compute service set --up", "200, not 400", "no evacuation from there is pending"),
    ("--limit 3)", "/servers_links is additional", "the recorded cloud had two servers then"),
    ("(usage show", "/tenant_usage/", "the recorded cloud had servers before"),
    ("(server evacuate ev2", "/progress is", "in ERROR in the recorded cloud"),
    ("(server delete --wait ev2", "/progress is", "in ERROR in the recorded cloud"),
    ("(server delete --wait ev2", "/fault is", "in ERROR in the recorded cloud"),
    (
        "(server add security group",
        "202, not 404",
        "the recorded Neutron stub had no security groups",
    ),
];

/// Parts of commands that are not replayed, with the reasons.
const LEFT_OUT: &[(&str, &str)] = &[
    ("vnonic", "failed in the recorded cloud because of its Neutron stub"),
    ("acc2", "needs an accelerator: see kilonova-compute's tests"),
];

#[tokio::test]
async fn recorded_requests_get_novas_answers() {
    let Some(all) = recording() else { return };
    let document = Document::compute().expect("the document is valid");
    for cloud in clouds_of(&HOSTS).await {
        let mut replay = Replay {
            cloud: &cloud,
            document: &document,
            ids: BTreeMap::new(),
            objections: BTreeSet::new(),
            shapes: BTreeSet::new(),
            used: BTreeSet::new(),
        };
        replay.furnish().await;
        let is_sent =
            |one: &&Recorded| !LEFT_OUT.iter().any(|(part, _)| one.command.contains(part));
        for recorded in all.iter().filter(is_sent) {
            replay.send(recorded).await;
        }
        for (_, (at, what, why)) in
            DIFFERENT.iter().enumerate().filter(|(n, _)| replay.used.contains(n))
        {
            println!("  differs: {at} {what}: {why}");
        }
        for (part, why) in LEFT_OUT {
            println!("  left out: {part}: {why}");
        }
        println!(
            "{}: {} requests in {} shapes, {} with a listed difference, {} without",
            cloud.store,
            all.len(),
            replay.shapes.len(),
            replay.used.len(),
            replay.objections.len()
        );
        let objections: Vec<String> = replay.objections.into_iter().collect();
        assert!(objections.is_empty(), "{}", objections.join("\n"));
    }
}

struct Replay<'a> {
    cloud: &'a Cloud,
    document: &'a Document,
    /// Ids in the recording, and the corresponding ids here.
    ids: BTreeMap<String, String>,
    objections: BTreeSet<String>,
    shapes: BTreeSet<String>,
    used: BTreeSet<usize>,
}

impl Replay<'_> {
    /// Creates the objects that existed when the recording began.
    async fn furnish(&mut self) {
        let flavor =
            json!({"flavor": {"id": "t1", "name": "t1", "ram": 64, "vcpus": 1, "disk": 1}});
        // The client's project is the caller's project here.
        self.ids.insert("3a7eee943ebe4177a253517a3ddc1f10".into(), ADMIN.into());
        let path = "/v2.1/flavors";
        let (status, answer) = exchange(self.cloud, ADMIN, 1, "POST", path, &Some(flavor)).await;
        assert_eq!(status, 200, "{answer}");
    }

    async fn send(&mut self, recorded: &Recorded) {
        let mut body = recorded.body.clone();
        if let Some(body) = &mut body {
            self.renamed(body);
            if let Some(image) = body.pointer_mut("/server/imageRef") {
                *image = json!(self.cloud.image);
            }
            if let Some(image) = body.pointer_mut("/server/block_device_mapping_v2/0/uuid") {
                *image = json!(self.cloud.image);
            }
            if let Some(image) = body.pointer_mut("/rebuild/imageRef") {
                *image = json!(self.cloud.image);
            }
        }
        let mut path = recorded.path.clone();
        for (theirs, ours) in &self.ids {
            path = path.replace(theirs, ours);
        }
        let (got, answer) =
            exchange(self.cloud, ADMIN, recorded.minor, &recorded.method, &path, &body).await;
        let bare = path.split('?').next().unwrap_or(&path);
        let operation = self.document.find(&recorded.method, bare);
        let name = operation.map_or_else(|| bare.to_owned(), |operation| operation.name());
        let shape =
            format!("{name} 2.{} {}", recorded.minor, body.as_ref().map(shape).unwrap_or_default());
        self.shapes.insert(shape);
        let shown = format!("{} {} ({})", recorded.method, recorded.path, recorded.command);
        if got != recorded.status {
            let what = format!("{got}, not {}", recorded.status);
            self.object(&shown, &what, &answer);
        } else if got < 300 {
            let mut differences = Vec::new();
            keys(&recorded.answer, &answer, "", &mut differences);
            for what in differences {
                self.object(&shown, &what, &Value::Null);
            }
            self.learn(&recorded.answer, &answer);
        }
        if let Some(operation) = operation.filter(|_| got < 300 && !answer.is_null()) {
            let action = body.as_ref().filter(|_| bare.ends_with("/action"));
            let action = action.and_then(Value::as_object).and_then(|b| b.keys().next().cloned());
            let action = action.filter(|_| bare.contains("/servers/"));
            let action = action.as_deref();
            let why =
                self.document.objection(operation, Side::Answer, recorded.minor, action, &answer);
            if let Some(why) = why {
                self.object(&shown, &format!("violates the document: {why}"), &answer);
            }
        } else if operation.is_none() {
            self.object(&shown, "not in the document", &Value::Null);
        }
        if recorded.method != "GET" && path.contains("/servers") {
            self.rest().await;
        }
    }

    fn object(&mut self, shown: &str, what: &str, answer: &Value) {
        let known = |(at, how, _): &&(&str, &str, &str)| shown.contains(at) && what.contains(how);
        match DIFFERENT.iter().position(|one| known(&one)) {
            Some(index) => drop(self.used.insert(index)),
            None => drop(self.objections.insert(format!("{shown}: {what} {answer}"))),
        }
    }

    /// Replaces the recording's ids with ours.
    fn renamed(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Some(ours) = self.ids.get(text) {
                    text.clone_from(ours);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.renamed(item)),
            Value::Object(map) => map.values_mut().for_each(|item| self.renamed(item)),
            _ => {}
        }
    }

    /// Records which of our ids correspond to the recording's.
    fn learn(&mut self, theirs: &Value, ours: &Value) {
        match (theirs, ours) {
            (Value::Object(theirs), Value::Object(ours)) => {
                for (key, theirs) in theirs {
                    let Some(ours) = ours.get(key) else { continue };
                    match (key.as_str(), theirs, ours) {
                        ("id" | "uuid" | "request_id", Value::String(t), Value::String(o))
                            if t.len() >= 32 =>
                        {
                            self.ids.insert(t.clone(), o.clone());
                        }
                        _ => self.learn(theirs, ours),
                    }
                }
            }
            (Value::Array(theirs), Value::Array(ours)) => {
                for theirs in theirs {
                    if let Some(same) = ours.iter().find(|ours| is_same(theirs, ours)) {
                        self.learn(theirs, same);
                    }
                }
            }
            _ => {}
        }
    }

    /// Waits until no server has a task.
    async fn rest(&self) {
        let path = "/v2.1/servers/detail?all_tenants=1";
        for _ in 0..4000 {
            let (_, answer) = exchange(self.cloud, ADMIN, 1, "GET", path, &None).await;
            let all = answer["servers"].as_array().cloned().unwrap_or_default();
            let at_rest = |server: &Value| {
                server["OS-EXT-STS:task_state"].is_null() && server["status"] != "BUILD"
            };
            if all.iter().all(at_rest) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        panic!("servers did not complete their tasks in time");
    }
}

/// True if two list items correspond to each other.
fn is_same(theirs: &Value, ours: &Value) -> bool {
    let keys = ["hypervisor_hostname", "host", "name", "action"];
    let known = keys.iter().find(|key| theirs.get(**key).is_some());
    known.is_some_and(|key| theirs[*key] == ours[*key])
}

/// The keys and types of a value.
fn shape(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let parts: Vec<String> =
                map.iter().map(|(key, value)| format!("{key}:{}", shape(value))).collect();
            format!("{{{}}}", parts.join(","))
        }
        Value::Array(items) => format!("[{}]", items.first().map(shape).unwrap_or_default()),
        Value::String(_) => "s".into(),
        Value::Number(_) => "n".into(),
        Value::Bool(_) => "b".into(),
        Value::Null => "-".into(),
    }
}

/// The keys that only one of two responses has. Ignores names chosen by users.
fn keys(theirs: &Value, ours: &Value, at: &str, found: &mut Vec<String>) {
    const NAMED: [&str; 4] = ["metadata", "extra_specs", "addresses", "links"];
    match (theirs, ours) {
        (Value::Object(theirs), Value::Object(ours)) => {
            if NAMED.iter().any(|named| at.ends_with(named)) {
                return;
            }
            for key in theirs.keys().filter(|key| !ours.contains_key(*key)) {
                found.push(format!("{at}/{key} is missing"));
            }
            for key in ours.keys().filter(|key| !theirs.contains_key(*key)) {
                found.push(format!("{at}/{key} is additional"));
            }
            for (key, theirs) in theirs {
                if let Some(ours) = ours.get(key) {
                    keys(theirs, ours, &format!("{at}/{key}"), found);
                }
            }
        }
        (Value::Array(theirs), Value::Array(ours)) => {
            if theirs.is_empty() != ours.is_empty() {
                found.push(format!("{at} has {} items, not {}", ours.len(), theirs.len()));
            }
            if let Some(theirs) = theirs.first()
                && let Some(ours) = ours.iter().find(|o| is_same(theirs, o)).or(ours.first())
            {
                keys(theirs, ours, &format!("{at}/0"), found);
            }
        }
        _ => {}
    }
}
