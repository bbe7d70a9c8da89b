//! `[pci] alias`: servers of flavors with `pci_passthrough:alias` get devices that match the alias,
//! keep such devices through migrations, and are refused where none matches.

use kilonova_compute_app::Options;
use kilonova_store::testing::CrashPlan;
use serde_json::{Value, json};

use crate::kit::{ANN, Answer, Cloud, RunningCloud, aliases, fault, hosts};
use crate::servers::checklist::inspect::{assert_holds, devices, used_on};
use crate::servers::resize::{admin, confirm_resize};

const VF: &str = r#"{"name": "vf", "vendor_id": "8086", "product_id": "154c",
    "device_type": "type-VF"}"#;
const QAT: &str = r#"{"name": "qat", "vendor_id": "8086", "product_id": "37c8"}"#;
/// Network cards of two functions each, and a card without any.
const MIXED: &str = r#"
card = [
    { card = "x710", addresses = ["0000:40:00.0", "0000:41:00.0"], vfs = 2 },
    { card = "c62x", addresses = ["0000:3d:00.0"] },
]
pci.device_spec = [
    '{"vendor_id": "8086", "product_id": "154c"}',
    '{"vendor_id": "8086", "product_id": "37c8"}',
]
"#;
/// Cards with the same ids as their functions.
const TWINS: &str = r#"
card = [{ card = "twins", addresses = ["0000:40:00.0"], vfs = 2 }]
pci.device_spec = ['{"vendor_id": "1b36", "product_id": "0010"}']
"#;

async fn cloud_with(lines: &[(&str, &[&str])], defined: &[&str]) -> Vec<(Cloud, RunningCloud)> {
    let mut all = Vec::new();
    for mut cloud in Cloud::all(hosts(lines)).await {
        cloud.options = Options { pci_aliases: aliases(defined), ..Options::default() };
        let running = cloud.start().await;
        running.wait_for_hosts().await;
        all.push((cloud, running));
    }
    all
}

/// Creates a flavor with this alias request.
async fn flavor_with_alias(running: &RunningCloud, flavor: &str, asked: &str) {
    running.flavor(flavor, json!({})).await;
    let specs = json!({"extra_specs": {"pci_passthrough:alias": asked}});
    running
        .admin("2.61", &format!("POST /flavors/{flavor}/os-extra_specs"), specs)
        .await
        .expect(200);
}

/// PCI addresses in the guest's domain on its host.
async fn addresses(cloud: &Cloud, running: &RunningCloud, id: &str) -> Vec<String> {
    let server = running.server(id).await;
    let host = server["OS-EXT-SRV-ATTR:host"].as_str().expect("the server has a host");
    devices(cloud, host, id).into_iter().map(|seen| seen.is).collect()
}

/// Boots a server for which there is no valid host; returns its fault.
pub async fn boot_without_valid_host(
    cloud: &Cloud,
    running: &RunningCloud,
    flavor: &str,
) -> String {
    let id = running.boot(cloud, flavor, flavor).await;
    let server = running.wait_for_status(&id, "ERROR").await;
    running.delete(&id).await;
    running.wait_until_gone(&id).await;
    fault(&server).to_owned()
}

#[tokio::test]
async fn each_device_matches_its_alias() {
    for (cloud, running) in cloud_with(&[("a", &[MIXED])], &[VF, QAT]).await {
        flavor_with_alias(&running, "two", "vf:2").await;
        flavor_with_alias(&running, "one-each", "vf:1, qat:1").await;
        flavor_with_alias(&running, "three", "vf:3").await;
        flavor_with_alias(&running, "five", "vf:5").await;
        flavor_with_alias(&running, "none", "vf:0").await;
        let is_vf =
            |one: &String| ["0000:40:00", "0000:41:00"].iter().any(|card| one.starts_with(card));

        let id = running.active_server(&cloud, "two", "two").await;
        let there = addresses(&cloud, &running, &id).await;
        assert!(there.len() == 2 && there.iter().all(is_vf), "{there:?}");
        assert_holds(&cloud, &running, &id, &[("CUSTOM_PCI_8086_154C", 2)]).await;
        cloud.assert_consistent(&running, "two").await;

        let id = running.active_server(&cloud, "one-each", "one-each").await;
        let there = addresses(&cloud, &running, &id).await;
        assert!(there[0] == "0000:3d:00.0" && is_vf(&there[1]), "{there:?}");
        let wanted = [("CUSTOM_PCI_8086_154C", 1), ("CUSTOM_PCI_8086_37C8", 1)];
        assert_holds(&cloud, &running, &id, &wanted).await;
        cloud.assert_consistent(&running, "one device each").await;

        let why = boot_without_valid_host(&cloud, &running, "two").await;
        assert!(
            why.contains("room for all requested resources at once"),
            "one device is left: {why}"
        );
        boot_without_valid_host(&cloud, &running, "one-each").await;
        cloud.teardown(&running, "before another boot").await;

        let id = running.active_server(&cloud, "three", "three").await;
        assert_holds(&cloud, &running, &id, &[("CUSTOM_PCI_8086_154C", 3)]).await;
        boot_without_valid_host(&cloud, &running, "five").await;
        let id = running.active_server(&cloud, "none", "none").await;
        assert_holds(&cloud, &running, &id, &[]).await;
        cloud.assert_consistent(&running, "all").await;
        cloud.teardown(&running, "all").await;
    }
}

#[tokio::test]
async fn group_policy_keeps_functions_on_different_cards() {
    for (cloud, running) in cloud_with(&[("a", &[MIXED])], &[VF, QAT]).await {
        for (flavor, count) in [("apart", 2), ("too-many", 3)] {
            flavor_with_alias(&running, flavor, &format!("vf:{count}")).await;
            let specs = json!({"extra_specs": {"group_policy": "isolate"}});
            let path = format!("POST /flavors/{flavor}/os-extra_specs");
            running.admin("2.61", &path, specs).await.expect(200);
        }
        let id = running.active_server(&cloud, "apart", "apart").await;
        let there = addresses(&cloud, &running, &id).await;
        assert!(there[0].starts_with("0000:40") && there[1].starts_with("0000:41"), "{there:?}");
        boot_without_valid_host(&cloud, &running, "too-many").await;
        cloud.teardown(&running, "apart").await;
    }
}

#[tokio::test]
async fn traits_and_classes_choose_among_like_devices() {
    let gold = r#"
card = [{ card = "c62x", addresses = ["0000:3d:00.0", "0000:3e:00.0", "0000:3f:00.0"] }]
pci.device_spec = [
    '{"address": "0000:3e:00.0", "traits": "gold"}',
    '{"address": "0000:3f:00.0", "resource_class": "kept"}',
    '{"vendor_id": "8086", "product_id": "37c8"}',
]
"#;
    let defined = [
        r#"{"name": "gold", "vendor_id": "8086", "product_id": "37c8", "traits": "gold"}"#,
        r#"{"name": "kept", "resource_class": "kept", "vendor_id": "8086", "product_id": "37c8"}"#,
        r#"{"name": "others", "resource_class": "kept", "vendor_id": "8086", "product_id": "37c9"}"#,
    ];
    for (cloud, running) in cloud_with(&[("a", &[gold])], &defined).await {
        for name in ["gold", "kept", "others"] {
            flavor_with_alias(&running, name, &format!("{name}:1")).await;
        }
        for (flavor, address) in [("gold", "0000:3e:00.0"), ("kept", "0000:3f:00.0")] {
            let id = running.active_server(&cloud, flavor, flavor).await;
            assert_eq!(addresses(&cloud, &running, &id).await, [address]);
            let why = boot_without_valid_host(&cloud, &running, flavor).await;
            assert!(why.contains("No valid host"), "{why}");
        }
        cloud.teardown(&running, "others are free").await;
        let why = boot_without_valid_host(&cloud, &running, "others").await;
        assert!(why.contains("CUSTOM_PCI_8086_37C9"), "{why}");
        cloud.teardown(&running, "no such device").await;
    }
}

#[tokio::test]
async fn a_card_and_its_functions_are_told_apart_by_their_type() {
    let ids = r#""vendor_id": "1b36", "product_id": "0010""#;
    let defined = [
        format!(r#"{{"name": "any", {ids}}}"#),
        format!(r#"{{"name": "vf", {ids}, "device_type": "type-VF"}}"#),
        format!(r#"{{"name": "pf", {ids}, "device_type": "type-PF"}}"#),
        format!(r#"{{"name": "pci", {ids}, "device_type": "type-PCI"}}"#),
    ];
    let defined: Vec<&str> = defined.iter().map(String::as_str).collect();
    for (cloud, running) in cloud_with(&[("a", &[TWINS])], &defined).await {
        for name in ["any", "vf", "pf", "pci"] {
            flavor_with_alias(&running, name, &format!("{name}:1")).await;
        }
        let id = running.active_server(&cloud, "card", "pf").await;
        assert_eq!(addresses(&cloud, &running, &id).await, ["0000:40:00.0"]);
        boot_without_valid_host(&cloud, &running, "vf").await;
        cloud.teardown(&running, "whole card").await;
        for flavor in ["vf", "any"] {
            let id = running.active_server(&cloud, flavor, flavor).await;
            let there = addresses(&cloud, &running, &id).await;
            assert!(there.len() == 1 && there[0] != "0000:40:00.0", "{there:?}");
        }
        for flavor in ["any", "pf", "pci"] {
            boot_without_valid_host(&cloud, &running, flavor).await;
        }
        cloud.teardown(&running, "functions of the card").await;
    }
}

#[tokio::test]
async fn servers_of_one_request_get_one_device_each() {
    let entries: [(&str, &[&str]); 2] = [("a", &[MIXED]), ("b", &[MIXED])];
    for (cloud, running) in cloud_with(&entries, &[VF, QAT]).await {
        flavor_with_alias(&running, "qat", "qat:1").await;
        let boot_request = |count: i64| {
            let mut boot_request = running.boot_request(&cloud, "some", "qat");
            boot_request["server"]["min_count"] = json!(count);
            boot_request
        };
        running.call(ANN, "2.90", "POST /servers", Some(boot_request(2))).await.expect(202);
        let servers = running.wait_all_idle().await;
        assert!(servers.len() == 2 && servers.iter().all(|one| one["status"] == "ACTIVE"));
        for host in ["a", "b"] {
            assert_eq!(used_on(&running, host, "CUSTOM_PCI_8086_37C8").await, 1, "{host}");
        }
        cloud.assert_consistent(&running, "two").await;
        cloud.teardown(&running, "two").await;
        running.call(ANN, "2.90", "POST /servers", Some(boot_request(3))).await.expect(202);
        assert!(
            running.wait_all_idle().await.iter().all(|one| one["status"] == "ERROR"),
            "room for two"
        );
        cloud.teardown(&running, "three").await;
    }
}

#[tokio::test]
async fn a_resize_gains_and_loses_devices() {
    let entries: [(&str, &[&str]); 2] = [("a", &[MIXED]), ("b", &[MIXED])];
    for (cloud, running) in cloud_with(&entries, &[VF, QAT]).await {
        flavor_with_alias(&running, "one", "vf:1").await;
        flavor_with_alias(&running, "more", "vf:2,qat:1").await;
        let id = running.active_server(&cloud, "one", "plain").await;
        for (flavor, count) in [("one", 1), ("more", 3), ("plain", 0)] {
            running.act(&id, json!({"resize": {"flavorRef": flavor}})).await;
            running.wait_for_status(&id, "VERIFY_RESIZE").await;
            cloud.assert_consistent(&running, flavor).await;
            confirm_resize(&running, &cloud, &id).await;
            running.wait_for_status(&id, "ACTIVE").await;
            assert_eq!(addresses(&cloud, &running, &id).await.len(), count, "{flavor}");
            cloud.assert_consistent(&running, flavor).await;
        }
        cloud.teardown(&running, "image sizes").await;
    }
}

async fn go_live(running: &RunningCloud, id: &str) -> Answer {
    let action = json!({"os-migrateLive": {"host": null, "block_migration": "auto"}});
    admin(running, "2.90", id, action).await
}

/// The device decides whether it can be live-migrated, by alias as by class.
#[tokio::test]
async fn live_migration_by_alias_follows_the_device() {
    let a16 = |more: &str| {
        format!(
            r#"card = [{{ card = "a16", addresses = ["0000:25:00.0"] }}]
pci.device_spec = ['{{"vendor_id": "10de", "product_id": "25b6"{more}}}']"#
        )
    };
    let ready = a16(r#", "managed": "no", "live_migratable": "yes""#);
    let not = a16(r#", "managed": "no", "live_migratable": "no""#);
    let entries: [(&str, &[&str]); 4] =
        [("a", &[&ready]), ("b", &[&not]), ("c", &[&ready]), ("d", &[MIXED])];
    let ids = r#""vendor_id": "10de", "product_id": "25b6""#;
    let live = format!(r#"{{"name": "live", {ids}, "live_migratable": "yes"}}"#);
    let still = format!(r#"{{"name": "still", {ids}, "live_migratable": "no"}}"#);
    for (cloud, running) in cloud_with(&entries, &[&live, &still, VF]).await {
        flavor_with_alias(&running, "live", "live:1").await;
        flavor_with_alias(&running, "still", "still:1").await;
        flavor_with_alias(&running, "whole", "vf:1").await;
        let id = running.active_server_on(&cloud, "a", "live").await;
        go_live(&running, &id).await.expect(202);
        assert_eq!(running.wait_for_status(&id, "ACTIVE").await["OS-EXT-SRV-ATTR:host"], "c");
        assert_eq!(addresses(&cloud, &running, &id).await, ["0000:25:00.0"]);
        running.wait_for_host_cleanup(&cloud).await;
        cloud.assert_consistent(&running, "migrated").await;
        let other = running.active_server(&cloud, "still", "still").await;
        assert_eq!(running.server(&other).await["OS-EXT-SRV-ATTR:host"], "b");
        let whole = running.active_server(&cloud, "whole", "whole").await;
        go_live(&running, &whole).await.refused(400, "cannot live-migrate");
        cloud.teardown(&running, "live").await;
    }
}

/// The alias is no longer defined: existing servers keep their devices.
#[tokio::test]
async fn servers_outlive_their_alias_but_do_not_migrate_without_it() {
    let entries: [(&str, &[&str]); 2] = [("a", &[MIXED]), ("b", &[MIXED])];
    for (mut cloud, mut running) in cloud_with(&entries, &[VF, QAT]).await {
        flavor_with_alias(&running, "vf", "vf:1").await;
        flavor_with_alias(&running, "qat", "qat:1").await;
        let id = running.active_server_on(&cloud, "a", "vf").await;
        let shelved = running.active_server_on(&cloud, "b", "vf").await;
        admin(&running, "2.90", &shelved, json!({"shelve": null})).await.expect(202);
        running.wait_for_status(&shelved, "SHELVED_OFFLOADED").await;
        let before = addresses(&cloud, &running, &id).await;

        cloud.options.pci_aliases = aliases(&[QAT]);
        running.replace_services(&cloud, CrashPlan::default()).await;
        let gone = "PCI alias vf is not defined";
        let boot_request = running.boot_request(&cloud, "new", "vf");
        running.call(ANN, "2.90", "POST /servers", Some(boot_request)).await.refused(400, gone);
        let moves: [Value; 3] = [
            json!({"migrate": null}),
            json!({"resize": {"flavorRef": "vf"}}),
            json!({"os-migrateLive": {"host": null, "block_migration": "auto"}}),
        ];
        for (at, action) in moves.iter().enumerate() {
            let answer = admin(&running, "2.90", &id, action.clone()).await;
            // A passthrough function is not migrated in any case, and a resize needs another flavor.
            let why = [gone, "", "cannot live-migrate"][at];
            answer.refused(400, why);
        }
        let answer = admin(&running, "2.90", &shelved, json!({"unshelve": null})).await;
        answer.refused(400, gone);
        running.force_down("a", true).await;
        admin(&running, "2.94", &id, json!({"evacuate": {}})).await.refused(400, gone);
        running.force_down("a", false).await;
        cloud.assert_consistent(&running, "refused").await;

        for (action, status) in [
            (json!({"os-stop": null}), "SHUTOFF"),
            (json!({"os-start": null}), "ACTIVE"),
            (json!({"suspend": null}), "SUSPENDED"),
            (json!({"resume": null}), "ACTIVE"),
            (json!({"reboot": {"type": "HARD"}}), "ACTIVE"),
            (json!({"rebuild": {"imageRef": cloud.image}}), "ACTIVE"),
        ] {
            admin(&running, "2.90", &id, action).await;
            running.wait_for_status(&id, status).await;
            assert_eq!(addresses(&cloud, &running, &id).await, before);
        }
        admin(&running, "2.90", &id, json!({"resize": {"flavorRef": "qat"}})).await.expect(202);
        running.wait_for_status(&id, "VERIFY_RESIZE").await;
        admin(&running, "2.90", &id, json!({"revertResize": null})).await.expect(202);
        running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(
            addresses(&cloud, &running, &id).await,
            before,
            "the revert restores the devices"
        );
        cloud.assert_consistent(&running, "unchanged").await;

        cloud.options.pci_aliases = aliases(&[VF]);
        running.replace_services(&cloud, CrashPlan::default()).await;
        admin(&running, "2.90", &shelved, json!({"unshelve": null})).await.expect(202);
        running.wait_for_status(&shelved, "ACTIVE").await;
        assert_eq!(addresses(&cloud, &running, &shelved).await.len(), 1);
        cloud.teardown(&running, "defined again").await;
    }
}
