//! The floor: every host with its devices and their users, in a fixed number of statements.

use kilonova_compute_app::floor::{Extent, FloorQuery, MOST, floor as read_floor};
use kilonova_store::testing::Meter;
use serde_json::{Value, json};

use crate::kit::{ADMIN, ANN, Cloud, DISK, GPU, RunningCloud, hosts};

async fn floor(running: &RunningCloud, query: &str) -> Value {
    let path = format!("/kilonova/floor{query}");
    running.get(ADMIN, "2.1", &path).await.expect(200)["floor"].take()
}

fn names(floor: &Value) -> Vec<&str> {
    let hosts = floor["hosts"].as_array().expect("a list");
    hosts.iter().map(|host| host["name"].as_str().expect("a name")).collect()
}

/// The parts of all devices of a host.
fn parts(host: &Value) -> Vec<&Value> {
    let devices = host["devices"].as_array().expect("a list").iter();
    devices.flat_map(|device| device["parts"].as_array().expect("a list")).collect()
}

fn sum(parts: &[&Value], amount: &str) -> i64 {
    parts.iter().map(|part| part[amount].as_i64().expect("a number")).sum()
}

#[tokio::test]
async fn the_floor_has_every_host_with_its_devices_and_their_owners() {
    let topology = hosts(&[("a", &[GPU]), ("b", &[GPU]), ("c", &[DISK])]);
    for (cloud, running) in Cloud::all_running(topology).await {
        let id = running.active_server(&cloud, "one", "vgpu-pair").await;
        let shown = floor(&running, "").await;
        assert_eq!(names(&shown), ["a", "b", "c"]);
        assert_eq!(shown["next_marker"], Value::Null);
        let used: Vec<&Value> = shown["hosts"]
            .as_array()
            .expect("a list")
            .iter()
            .filter(|host| host["servers"] == 1)
            .collect();
        assert_eq!(used.len(), 1, "{shown}");
        let host = used[0];
        assert_eq!((&host["state"], &host["status"]), (&json!("up"), &json!("enabled")), "{host}");
        assert_eq!(host["inventories"]["VCPU"]["used"], 1, "{host}");
        assert_eq!(host["devices"].as_array().map(Vec::len), Some(2), "{host}");
        assert_eq!(host["devices"][0]["type"], "GPU", "{host}");
        assert_eq!(host["devices"][0]["health"], "healthy", "{host}");
        let of_host = parts(host);
        assert_eq!((sum(&of_host, "total"), sum(&of_host, "used")), (8, 2), "{host}");
        assert_eq!((sum(&of_host, "free"), sum(&of_host, "reserved")), (6, 0), "{host}");
        let handles: Vec<&Value> =
            of_host.iter().flat_map(|part| part["handles"].as_array().expect("a list")).collect();
        assert_eq!(handles.len(), 2, "free handles are not listed: {host}");
        for handle in handles {
            assert_eq!(handle["state"], "owned", "{handle}");
            assert_eq!((&handle["server"], &handle["server_name"]), (&json!(id), &json!("one")));
            assert_eq!(handle["mdev_type"], "nvidia-35", "{handle}");
            assert!(handle["project_id"].is_string(), "{handle}");
        }

        // Pages, and selected hosts.
        let first = floor(&running, "?limit=2").await;
        assert_eq!((names(&first), &first["next_marker"]), (vec!["a", "b"], &json!("b")));
        let second = floor(&running, "?limit=2&marker=b").await;
        assert_eq!((names(&second), &second["next_marker"]), (vec!["c"], &Value::Null));
        assert_eq!(names(&floor(&running, "?host=c&host=a&host=nothing").await), ["a", "c"]);
        for wrong in ["limit=0", "limit=1001", "limit=x"] {
            let path = format!("/kilonova/floor?{wrong}");
            running.get(ADMIN, "2.1", &path).await.refused(400, "limit must be a number");
        }
        let refused = running.get(ANN, "2.1", "/kilonova/floor").await;
        refused.refused(403, "kilonova:floor:show");

        // The deletion of a server on a dead host leaves its handles dirty.
        let name = host["name"].as_str().expect("a name").to_owned();
        running.force_down(&name, true).await;
        let before = running.compute.floor_marks();
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        let changed = running.compute.floor_marks().changed_since(&before);
        assert_eq!(changed.iter().map(|host| &**host).collect::<Vec<_>>(), [&*name]);
        let now = running.compute.floor_marks();
        assert!(now.changed_since(&now).is_empty());
        running.force_down(&name, false).await;
        assert_eq!(running.compute.floor_marks().changed_since(&now).len(), 1, "it is up again");
        cloud.teardown(&running, "floor").await;
    }
}

#[tokio::test]
async fn the_number_of_statements_does_not_grow_with_devices_or_servers() {
    let entries: [(&str, &[&str]); 3] = [("a", &[GPU]), ("b", &[GPU]), ("c", &[GPU])];
    for (cloud, running) in Cloud::all_running(hosts(&entries)).await {
        let meter = Meter::listing();
        let mut counted = running.compute.clone();
        counted.store = counted.store.with_meter(meter.clone());
        let statements = async |extent| {
            let query = FloorQuery { hosts: Vec::new(), after: None, limit: MOST, extent };
            let found = read_floor(&counted, query).await.expect("the tables are readable");
            assert_eq!(found.hosts.len(), 3);
            let all = meter.take_transactions();
            all.iter().map(|one| one.statements.len()).sum::<usize>()
        };
        let idle = statements(Extent::Details).await;
        for _ in 0..4 {
            running.active_server(&cloud, "one", "vgpu").await;
        }
        assert_eq!((statements(Extent::Details).await, idle), (8, 8), "{}", cloud.name);
        assert_eq!(statements(Extent::Drawing).await, 7, "{}", cloud.name);
        cloud.teardown(&running, "statements").await;
    }
}
