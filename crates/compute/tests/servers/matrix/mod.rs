//! Every operation with every kind of accelerator. Each file prints its part of the matrix. The two stores
//! share the cells like the colours of a chessboard, so each store runs every operation and every kind.
//!
//! To add an operation, add a line to `OPERATIONS` of a file and an arm to its `perform`, which
//! returns when no server has a task. After each operation the guests have exactly the devices of the
//! ledger, the audit is clean, and after the servers are deleted nothing is left.

mod creates;
mod in_place;
mod live;
mod moves;

use kilonova_testkit::Share;
use serde_json::{Value, json};

use crate::kit::{ADMIN, Cloud, RunningCloud};
use crate::servers::resize::admin;

/// The name and the flavor of each kind.
const KINDS: &[(&str, &str)] = &[
    ("none", "plain"),
    ("vGPU by resources", "vgpu"),
    ("vGPU by profile", "profile"),
    ("two vGPUs apart", "vgpu-pair"),
    ("whole PCI function", "whole"),
    ("whole by alias", "aliased"),
    ("FPGA", "fpga"),
];

/// A host with every kind of device.
const ALL: &str = r#"
card = [
    { card = "m10", addresses = ["0000:84:00.0", "0000:85:00.0"] },
    { card = "x710", addresses = ["0000:40:00.0", "0000:41:00.0"], vfs = 1 },
]
devices = { enabled_mdev_types = ["nvidia-35"] }
fake = [{}]
pci.device_spec = ['{"vendor_id": "8086", "product_id": "158b", "resource_class": "X710"}']
"#;

/// True for combinations that are refused.
fn refused(kind: &str, operation: &str) -> bool {
    matches!(kind, "whole PCI function" | "whole by alias" | "FPGA")
        && operation.starts_with("live migrate")
}

/// The flavors of all kinds, and larger ones.
async fn flavors(running: &RunningCloud) {
    for (flavor, key, value) in
        [("whole", "resources:CUSTOM_X710", "1"), ("aliased", "pci_passthrough:alias", "x710:1")]
    {
        running.flavor(flavor, json!({})).await;
        let path = format!("POST /flavors/{flavor}/os-extra_specs");
        running.admin("2.61", &path, json!({"extra_specs": {key: value}})).await.expect(200);
    }
    for (_, flavor) in KINDS {
        let shown = running.get(ADMIN, "2.61", &format!("/flavors/{flavor}")).await.expect(200);
        let specs = shown["flavor"]["extra_specs"].clone();
        let large = format!("{flavor}-large");
        running.flavor(&large, json!({"vcpus": 2, "ram": 128, "disk": 2})).await;
        if specs.as_object().is_some_and(|specs| !specs.is_empty()) {
            let path = format!("POST /flavors/{large}/os-extra_specs");
            running.admin("2.61", &path, json!({"extra_specs": specs})).await.expect(200);
        }
    }
}

async fn act(running: &RunningCloud, id: &str, action: Value) {
    let answer = admin(running, "2.91", id, action).await;
    assert!(answer.status.is_success(), "{}", answer.body);
}

/// Runs one operation, given by its number and name, with each kind of accelerator in the store's share. Returns the
/// row of the matrix.
async fn row(
    share: Share,
    cloud: &Cloud,
    running: &mut RunningCloud,
    (number, operation): (usize, &str),
    perform: impl AsyncFn(&Cloud, &mut RunningCloud, &str) -> String,
) -> Vec<String> {
    let mut row = Vec::new();
    for (at, (kind, flavor)) in KINDS.iter().enumerate() {
        if !share.has(number + at) {
            row.push(String::new());
            continue;
        }
        let when = format!("{operation} with {kind}");
        let came = perform(cloud, running, flavor).await;
        let expected = if refused(kind, operation) { "refused" } else { "works" };
        assert_eq!(came, expected, "{when}");
        running.wait_for_host_cleanup(cloud).await;
        cloud.assert_consistent(running, &when).await;
        cloud.teardown(running, &when).await;
        row.push(came);
    }
    row
}

fn print(store: &str, table: &[(&str, Vec<String>)]) {
    let heads: Vec<&str> = KINDS.iter().map(|(kind, _)| *kind).collect();
    println!("| on {store:42} | {} |", heads.join(" | "));
    for (operation, row) in table {
        let cells: Vec<String> = row
            .iter()
            .zip(&heads)
            .map(|(cell, head)| format!("{cell:width$}", width = head.len()))
            .collect();
        println!("| {operation:45} | {} |", cells.join(" | "));
    }
}
