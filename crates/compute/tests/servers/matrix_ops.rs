//! Every operation with every kind of accelerator. Prints the matrix.
//!
//! To add an operation: a line in `OPERATIONS` and an arm in `perform`, which begins with a server
//! that is `ACTIVE` on host `a` and ends when it is at rest. After each the guests have exactly the
//! devices that the ledger gives them, the audit is clean, and once the server is deleted nothing
//! is left.

use serde_json::{Value, json};

use crate::kit::{ADMIN, Cloud, Up, hosts};
use crate::moving::admin;

/// Name, and flavor.
const KINDS: &[(&str, &str)] = &[
    ("none", "plain"),
    ("vGPU by resources", "vgpu"),
    ("vGPU by profile", "profile"),
    ("two vGPUs apart", "vgpu-pair"),
    ("whole PCI function", "whole"),
    ("FPGA", "fpga"),
];

const OPERATIONS: &[&str] = &[
    "stop and start",
    "reboot soft",
    "reboot hard",
    "resize to a larger flavor, confirm",
    "resize to a larger flavor, revert",
    "resize to a flavor without, confirm",
    "resize to a flavor without, revert",
    "resize to a flavor with another, confirm",
    "resize on one host, confirm",
    "resize on one host, revert",
    "cold migrate, confirm",
    "cold migrate to a host, revert",
    "cold migrate while stopped, confirm",
    "live migrate",
    "live migrate to a host",
    "evacuate",
    "evacuate to a host, 2.95",
    "delete while resized",
];

/// What cannot be done, and is refused in words.
fn refused(kind: &str, operation: &str) -> bool {
    matches!(kind, "whole PCI function" | "FPGA") && operation.starts_with("live migrate")
}

/// A host with everything.
const ALL: &str = r#"
card = [
    { card = "m10", addresses = ["0000:84:00.0", "0000:85:00.0"] },
    { card = "x710", addresses = ["0000:40:00.0", "0000:41:00.0"], vfs = 1 },
]
devices = { enabled_mdev_types = ["nvidia-35"] }
fake = [{}]
pci.device_spec = ['{"vendor_id": "8086", "product_id": "158b", "resource_class": "X710"}']
"#;

async fn flavors(up: &Up) {
    up.flavor("whole", json!({})).await;
    let specs = json!({"extra_specs": {"resources:CUSTOM_X710": "1"}});
    up.admin("2.61", "POST /flavors/whole/os-extra_specs", specs).await.expect(200);
    for (_, flavor) in KINDS {
        let shown = up.get(ADMIN, "2.61", &format!("/flavors/{flavor}")).await.expect(200);
        let specs = shown["flavor"]["extra_specs"].clone();
        let large = format!("{flavor}-large");
        up.flavor(&large, json!({"vcpus": 2, "ram": 128, "disk": 2})).await;
        if specs.as_object().is_some_and(|specs| !specs.is_empty()) {
            let path = format!("POST /flavors/{large}/os-extra_specs");
            up.admin("2.61", &path, json!({"extra_specs": specs})).await.expect(200);
        }
    }
}

async fn act(up: &Up, id: &str, action: Value) {
    let answer = admin(up, "2.90", id, action).await;
    assert!(answer.status.is_success(), "{}", answer.body);
}

/// Resizes and then confirms or reverts, and returns the status at the end.
async fn resize(cloud: &Cloud, up: &Up, id: &str, flavor: &str, end: &str) {
    act(up, id, json!({"resize": {"flavorRef": flavor}})).await;
    up.becomes(id, "VERIFY_RESIZE").await;
    cloud.sound(up, flavor).await;
    finish(up, id, end).await;
}

async fn finish(up: &Up, id: &str, end: &str) {
    let verb = if end == "confirm" { "confirmResize" } else { "revertResize" };
    act(up, id, json!({verb: null})).await;
}

async fn perform(cloud: &Cloud, up: &Up, id: &str, flavor: &str, operation: &str) -> String {
    let (what, end) = operation.split_once(", ").unwrap_or((operation, ""));
    let mut rests = "ACTIVE";
    match what {
        "stop and start" => {
            act(up, id, json!({"os-stop": null})).await;
            up.becomes(id, "SHUTOFF").await;
            act(up, id, json!({"os-start": null})).await;
        }
        "reboot soft" => act(up, id, json!({"reboot": {"type": "SOFT"}})).await,
        "reboot hard" => act(up, id, json!({"reboot": {"type": "HARD"}})).await,
        "resize to a larger flavor" | "resize on one host" => {
            resize(cloud, up, id, &format!("{flavor}-large"), end).await;
        }
        "resize to a flavor without" => {
            let plain = if flavor == "plain" { "plain-large" } else { "plain" };
            resize(cloud, up, id, plain, end).await;
        }
        "resize to a flavor with another" => {
            let other = if flavor == "fpga" { "vgpu" } else { "fpga" };
            resize(cloud, up, id, other, end).await;
        }
        "cold migrate" | "cold migrate while stopped" | "cold migrate to a host" => {
            if what.ends_with("stopped") {
                act(up, id, json!({"os-stop": null})).await;
                up.becomes(id, "SHUTOFF").await;
                rests = "SHUTOFF";
            }
            let host = if what.ends_with("host") { json!({"host": "b"}) } else { Value::Null };
            act(up, id, json!({"migrate": host})).await;
            up.becomes(id, "VERIFY_RESIZE").await;
            cloud.sound(up, what).await;
            finish(up, id, end).await;
        }
        "live migrate" | "live migrate to a host" => {
            let host = what.ends_with("host").then_some("b");
            let body = json!({"os-migrateLive": {"host": host, "block_migration": "auto"}});
            let answer = admin(up, "2.90", id, body).await;
            if answer.status == 400 {
                assert!(answer.message().contains("cannot be moved"), "{}", answer.body);
                return "refused".into();
            }
            answer.expect(202);
            up.becomes(id, "ACTIVE").await;
            assert_eq!(up.server(id).await["OS-EXT-SRV-ATTR:host"], "b");
        }
        "evacuate" | "evacuate to a host" => {
            up.force_down("a", true).await;
            let (version, body) = match end {
                "2.95" => ("2.95", json!({"host": "b"})),
                _ => ("2.94", json!({})),
            };
            rests = if end == "2.95" { "SHUTOFF" } else { "ACTIVE" };
            admin(up, version, id, json!({"evacuate": body})).await.expect(200);
            up.rest(id).await;
            up.force_down("a", false).await;
        }
        "delete while resized" => {
            act(up, id, json!({"resize": {"flavorRef": format!("{flavor}-large")}})).await;
            up.becomes(id, "VERIFY_RESIZE").await;
            rests = "VERIFY_RESIZE";
        }
        other => panic!("no such operation: {other}"),
    }
    let server = up.becomes(id, rests).await;
    assert_ne!(server["OS-EXT-STS:vm_state"], "error", "{server}");
    "works".into()
}

#[tokio::test]
async fn every_operation_with_every_accelerator() {
    for mut cloud in Cloud::all(hosts(&[("a", &[ALL]), ("b", &[ALL])])).await {
        let mut table = Vec::new();
        let mut up = cloud.start().await;
        up.hosts_are_there().await;
        flavors(&up).await;
        for operation in OPERATIONS {
            let alone = operation.contains("on one host");
            if cloud.options.allow_resize_to_same_host != alone {
                up.kill().await;
                cloud.options.allow_resize_to_same_host = alone;
                up = cloud.start().await;
                up.hosts_are_there().await;
            }
            // With the other host disabled, a resize has but one place.
            enable(&up, "b", !alone).await;
            let mut row = Vec::new();
            for (kind, flavor) in KINDS {
                let when = format!("{operation} with {kind}");
                let id = up.active_on(&cloud, "a", flavor).await;
                let came = perform(&cloud, &up, &id, flavor, operation).await;
                let expected = if refused(kind, operation) { "refused" } else { "works" };
                assert_eq!(came, expected, "{when}");
                up.hosts_have_dropped(&cloud).await;
                cloud.sound(&up, &when).await;
                cloud.sweep(&up, &when).await;
                row.push(came);
            }
            table.push((operation, row));
        }
        print(cloud.name, &table);
        up.kill().await;
    }
}

async fn enable(up: &Up, host: &str, on: bool) {
    let verb = if on { "enable" } else { "disable" };
    let body = json!({"host": host, "binary": "nova-compute"});
    up.admin("2.1", &format!("PUT /os-services/{verb}"), body).await.expect(200);
}

fn print(store: &str, table: &[(&&str, Vec<String>)]) {
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
