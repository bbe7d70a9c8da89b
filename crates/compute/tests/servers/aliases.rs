//! `[pci] alias`: flavors with `pci_passthrough:alias` get the devices that the alias names and no
//! others, keep them wherever they go, and are refused where it names none.

use kilonova_compute::Options;
use kilonova_store::testing::CrashPlan;
use serde_json::{Value, json};

use crate::kit::{ANN, Answer, Cloud, Up, aliases, fault, hosts};
use crate::servers::checklist::eyes::{devices, holds, used_on};
use crate::servers::moving::{admin, confirmed};

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
/// Cards that are like their own functions, by their ids.
const TWINS: &str = r#"
card = [{ card = "twins", addresses = ["0000:40:00.0"], vfs = 2 }]
pci.device_spec = ['{"vendor_id": "1b36", "product_id": "0010"}']
"#;

async fn cloud_with(lines: &[(&str, &[&str])], defined: &[&str]) -> Vec<(Cloud, Up)> {
    let mut all = Vec::new();
    for mut cloud in Cloud::all(hosts(lines)).await {
        cloud.options = Options { pci_aliases: aliases(defined), ..Options::default() };
        let up = cloud.start().await;
        up.hosts_are_there().await;
        all.push((cloud, up));
    }
    all
}

/// A flavor, called so, that asks for it.
async fn asks(up: &Up, flavor: &str, asked: &str) {
    up.flavor(flavor, json!({})).await;
    let specs = json!({"extra_specs": {"pci_passthrough:alias": asked}});
    up.admin("2.61", &format!("POST /flavors/{flavor}/os-extra_specs"), specs).await.expect(200);
}

/// Addresses in the guest, where it is.
async fn addresses(cloud: &Cloud, up: &Up, id: &str) -> Vec<String> {
    let server = up.server(id).await;
    let host = server["OS-EXT-SRV-ATTR:host"].as_str().expect("a host");
    devices(cloud, host, id).into_iter().map(|seen| seen.is).collect()
}

/// A server that finds no place, and why.
async fn finds_none(cloud: &Cloud, up: &Up, flavor: &str) -> String {
    let id = up.boot(cloud, flavor, flavor).await;
    let server = up.becomes(&id, "ERROR").await;
    up.delete(&id).await;
    up.goes(&id).await;
    fault(&server).to_owned()
}

#[tokio::test]
async fn each_device_is_one_of_those_that_are_named() {
    for (cloud, up) in cloud_with(&[("a", &[MIXED])], &[VF, QAT]).await {
        asks(&up, "two", "vf:2").await;
        asks(&up, "one-each", "vf:1, qat:1").await;
        asks(&up, "three", "vf:3").await;
        asks(&up, "five", "vf:5").await;
        asks(&up, "none", "vf:0").await;
        let is_vf =
            |one: &String| ["0000:40:00", "0000:41:00"].iter().any(|card| one.starts_with(card));

        let id = up.active(&cloud, "two", "two").await;
        let there = addresses(&cloud, &up, &id).await;
        assert!(there.len() == 2 && there.iter().all(is_vf), "{there:?}");
        holds(&cloud, &up, &id, &[("CUSTOM_PCI_8086_154C", 2)]).await;
        cloud.sound(&up, "two").await;

        let id = up.active(&cloud, "one-each", "one-each").await;
        let there = addresses(&cloud, &up, &id).await;
        assert!(there[0] == "0000:3d:00.0" && is_vf(&there[1]), "{there:?}");
        let wanted = [("CUSTOM_PCI_8086_154C", 1), ("CUSTOM_PCI_8086_37C8", 1)];
        holds(&cloud, &up, &id, &wanted).await;
        cloud.sound(&up, "one each").await;

        let why = finds_none(&cloud, &up, "two").await;
        assert!(why.contains("room for all requested resources at once"), "one is left: {why}");
        finds_none(&cloud, &up, "one-each").await;
        cloud.sweep(&up, "before more").await;

        let id = up.active(&cloud, "three", "three").await;
        holds(&cloud, &up, &id, &[("CUSTOM_PCI_8086_154C", 3)]).await;
        finds_none(&cloud, &up, "five").await;
        let id = up.active(&cloud, "none", "none").await;
        holds(&cloud, &up, &id, &[]).await;
        cloud.sound(&up, "all").await;
        cloud.sweep(&up, "all").await;
    }
}

#[tokio::test]
async fn group_policy_keeps_functions_on_different_cards() {
    for (cloud, up) in cloud_with(&[("a", &[MIXED])], &[VF, QAT]).await {
        for (flavor, count) in [("apart", 2), ("too-many", 3)] {
            asks(&up, flavor, &format!("vf:{count}")).await;
            let specs = json!({"extra_specs": {"group_policy": "isolate"}});
            let path = format!("POST /flavors/{flavor}/os-extra_specs");
            up.admin("2.61", &path, specs).await.expect(200);
        }
        let id = up.active(&cloud, "apart", "apart").await;
        let there = addresses(&cloud, &up, &id).await;
        assert!(there[0].starts_with("0000:40") && there[1].starts_with("0000:41"), "{there:?}");
        finds_none(&cloud, &up, "too-many").await;
        cloud.sweep(&up, "apart").await;
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
    for (cloud, up) in cloud_with(&[("a", &[gold])], &defined).await {
        for name in ["gold", "kept", "others"] {
            asks(&up, name, &format!("{name}:1")).await;
        }
        for (flavor, address) in [("gold", "0000:3e:00.0"), ("kept", "0000:3f:00.0")] {
            let id = up.active(&cloud, flavor, flavor).await;
            assert_eq!(addresses(&cloud, &up, &id).await, [address]);
            let why = finds_none(&cloud, &up, flavor).await;
            assert!(why.contains("No valid host"), "{why}");
        }
        cloud.sweep(&up, "with others free").await;
        let why = finds_none(&cloud, &up, "others").await;
        assert!(why.contains("CUSTOM_PCI_8086_37C9"), "{why}");
        cloud.sweep(&up, "none of these ids").await;
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
    for (cloud, up) in cloud_with(&[("a", &[TWINS])], &defined).await {
        for name in ["any", "vf", "pf", "pci"] {
            asks(&up, name, &format!("{name}:1")).await;
        }
        let id = up.active(&cloud, "card", "pf").await;
        assert_eq!(addresses(&cloud, &up, &id).await, ["0000:40:00.0"]);
        finds_none(&cloud, &up, "vf").await;
        cloud.sweep(&up, "the card").await;
        for flavor in ["vf", "any"] {
            let id = up.active(&cloud, flavor, flavor).await;
            let there = addresses(&cloud, &up, &id).await;
            assert!(there.len() == 1 && there[0] != "0000:40:00.0", "{there:?}");
        }
        for flavor in ["any", "pf", "pci"] {
            finds_none(&cloud, &up, flavor).await;
        }
        cloud.sweep(&up, "its functions").await;
    }
}

#[tokio::test]
async fn several_in_one_request_have_one_each() {
    let entries: [(&str, &[&str]); 2] = [("a", &[MIXED]), ("b", &[MIXED])];
    for (cloud, up) in cloud_with(&entries, &[VF, QAT]).await {
        asks(&up, "qat", "qat:1").await;
        let wish = |count: i64| {
            let mut wish = up.wish(&cloud, "some", "qat");
            wish["server"]["min_count"] = json!(count);
            wish
        };
        up.call(ANN, "2.90", "POST /servers", Some(wish(2))).await.expect(202);
        let servers = up.settle().await;
        assert!(servers.len() == 2 && servers.iter().all(|one| one["status"] == "ACTIVE"));
        for host in ["a", "b"] {
            assert_eq!(used_on(&up, host, "CUSTOM_PCI_8086_37C8").await, 1, "{host}");
        }
        cloud.sound(&up, "two").await;
        cloud.sweep(&up, "two").await;
        up.call(ANN, "2.90", "POST /servers", Some(wish(3))).await.expect(202);
        assert!(up.settle().await.iter().all(|one| one["status"] == "ERROR"), "room for two");
        cloud.sweep(&up, "three").await;
    }
}

#[tokio::test]
async fn a_size_may_gain_and_lose_them() {
    let entries: [(&str, &[&str]); 2] = [("a", &[MIXED]), ("b", &[MIXED])];
    for (cloud, up) in cloud_with(&entries, &[VF, QAT]).await {
        asks(&up, "one", "vf:1").await;
        asks(&up, "more", "vf:2,qat:1").await;
        let id = up.active(&cloud, "one", "plain").await;
        for (flavor, count) in [("one", 1), ("more", 3), ("plain", 0)] {
            up.act(&id, json!({"resize": {"flavorRef": flavor}})).await;
            up.becomes(&id, "VERIFY_RESIZE").await;
            cloud.sound(&up, flavor).await;
            confirmed(&up, &cloud, &id).await;
            up.becomes(&id, "ACTIVE").await;
            assert_eq!(addresses(&cloud, &up, &id).await.len(), count, "{flavor}");
            cloud.sound(&up, flavor).await;
        }
        cloud.sweep(&up, "sizes").await;
    }
}

async fn go_live(up: &Up, id: &str) -> Answer {
    let wish = json!({"os-migrateLive": {"host": null, "block_migration": "auto"}});
    admin(up, "2.90", id, wish).await
}

/// What can go over is the device's to say, by alias as by class.
#[tokio::test]
async fn live_migration_is_as_for_the_same_device_by_its_class() {
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
    for (cloud, up) in cloud_with(&entries, &[&live, &still, VF]).await {
        asks(&up, "live", "live:1").await;
        asks(&up, "still", "still:1").await;
        asks(&up, "whole", "vf:1").await;
        let id = up.active_on(&cloud, "a", "live").await;
        go_live(&up, &id).await.expect(202);
        assert_eq!(up.becomes(&id, "ACTIVE").await["OS-EXT-SRV-ATTR:host"], "c");
        assert_eq!(addresses(&cloud, &up, &id).await, ["0000:25:00.0"]);
        up.hosts_have_dropped(&cloud).await;
        cloud.sound(&up, "gone over").await;
        let other = up.active(&cloud, "still", "still").await;
        assert_eq!(up.server(&other).await["OS-EXT-SRV-ATTR:host"], "b");
        let whole = up.active(&cloud, "whole", "whole").await;
        go_live(&up, &whole).await.refused(400, "cannot be moved while the server runs");
        cloud.sweep(&up, "live").await;
    }
}

/// The file says no more what the servers' devices are called: where they are, they stay as they are.
#[tokio::test]
async fn servers_outlive_their_alias_and_do_not_move_without_it() {
    let entries: [(&str, &[&str]); 2] = [("a", &[MIXED]), ("b", &[MIXED])];
    for (mut cloud, mut up) in cloud_with(&entries, &[VF, QAT]).await {
        asks(&up, "vf", "vf:1").await;
        asks(&up, "qat", "qat:1").await;
        let id = up.active_on(&cloud, "a", "vf").await;
        let shelved = up.active_on(&cloud, "b", "vf").await;
        admin(&up, "2.90", &shelved, json!({"shelve": null})).await.expect(202);
        up.becomes(&shelved, "SHELVED_OFFLOADED").await;
        let before = addresses(&cloud, &up, &id).await;

        cloud.options.pci_aliases = aliases(&[QAT]);
        up.succeed(&cloud, CrashPlan::default()).await;
        let gone = "PCI alias vf is not defined";
        let wish = up.wish(&cloud, "new", "vf");
        up.call(ANN, "2.90", "POST /servers", Some(wish)).await.refused(400, gone);
        let moves: [Value; 3] = [
            json!({"migrate": null}),
            json!({"resize": {"flavorRef": "vf"}}),
            json!({"os-migrateLive": {"host": null, "block_migration": "auto"}}),
        ];
        for (at, action) in moves.iter().enumerate() {
            let answer = admin(&up, "2.90", &id, action.clone()).await;
            // A whole function does not go over anyway, and the same size is none.
            let why = [gone, "", "cannot be moved"][at];
            answer.refused(400, why);
        }
        let answer = admin(&up, "2.90", &shelved, json!({"unshelve": null})).await;
        answer.refused(400, gone);
        up.force_down("a", true).await;
        admin(&up, "2.94", &id, json!({"evacuate": {}})).await.refused(400, gone);
        up.force_down("a", false).await;
        cloud.sound(&up, "refused").await;

        for (action, status) in [
            (json!({"os-stop": null}), "SHUTOFF"),
            (json!({"os-start": null}), "ACTIVE"),
            (json!({"suspend": null}), "SUSPENDED"),
            (json!({"resume": null}), "ACTIVE"),
            (json!({"reboot": {"type": "HARD"}}), "ACTIVE"),
            (json!({"rebuild": {"imageRef": cloud.image}}), "ACTIVE"),
        ] {
            admin(&up, "2.90", &id, action).await;
            up.becomes(&id, status).await;
            assert_eq!(addresses(&cloud, &up, &id).await, before);
        }
        admin(&up, "2.90", &id, json!({"resize": {"flavorRef": "qat"}})).await.expect(202);
        up.becomes(&id, "VERIFY_RESIZE").await;
        admin(&up, "2.90", &id, json!({"revertResize": null})).await.expect(202);
        up.becomes(&id, "ACTIVE").await;
        assert_eq!(addresses(&cloud, &up, &id).await, before, "back without being asked for again");
        cloud.sound(&up, "as they were").await;

        cloud.options.pci_aliases = aliases(&[VF]);
        up.succeed(&cloud, CrashPlan::default()).await;
        admin(&up, "2.90", &shelved, json!({"unshelve": null})).await.expect(202);
        up.becomes(&shelved, "ACTIVE").await;
        assert_eq!(addresses(&cloud, &up, &shelved).await.len(), 1);
        cloud.sweep(&up, "defined again").await;
    }
}
