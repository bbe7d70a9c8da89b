//! `kilonova placement import` from a Kilonova Placement with random data.

use std::process::{Command, Output};

use serde_json::{Value, json};

use super::{ALONE, admin, alone, claim};
use crate::kit::{Environment, Serve, Session};

/// A small deterministic generator, so that a failure can be reproduced.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

fn random_cloud(who: &Session) {
    let mut dice = Dice(7);
    for name in ["CUSTOM_A", "CUSTOM_B", "CUSTOM_UNUSED"] {
        who.send("PUT", &format!("/traits/{name}"), "", b"").ok(201);
    }
    who.send("PUT", "/resource_classes/CUSTOM_FPGA", "", b"").ok(201);
    let mut cards = Vec::new();
    for n in 0..12 {
        let mut parent = Value::Null;
        for deep in 0..=dice.roll(3) {
            let body = json!({"name": format!("p{n}.{deep} ☃"), "parent_provider_uuid": parent});
            let made = who.post("/resource_providers", &body).ok(200);
            let uuid = made["uuid"].as_str().expect("the provider has a uuid").to_owned();
            let below = format!("/resource_providers/{uuid}");
            let class = ["VCPU", "VGPU", "CUSTOM_FPGA"][dice.roll(3) as usize];
            let total = 4 + dice.roll(60);
            let body = json!({
                "resource_provider_generation": 0,
                "inventories": {
                    class: {"total": total, "reserved": dice.roll(3), "step_size": 1,
                            "allocation_ratio": 1.0 + dice.roll(4) as f64 / 3.0},
                    "DISK_GB": {"total": 100, "max_unit": 10 + dice.roll(50)},
                },
            });
            who.put(&format!("{below}/inventories"), &body).ok(200);
            let traits =
                [&["CUSTOM_A"][..], &["CUSTOM_B", "HW_CPU_X86_AVX2"], &[]][dice.roll(3) as usize];
            let body = json!({"resource_provider_generation": 1, "traits": traits});
            let set = who.put(&format!("{below}/traits"), &body).ok(200);
            let body = json!({
                "resource_provider_generation": set["resource_provider_generation"],
                "aggregates": [format!("00000000-0000-4000-8000-00000000000{}", dice.roll(4))],
            });
            who.put(&format!("{below}/aggregates"), &body).ok(200);
            cards.push((uuid.clone(), class));
            parent = uuid.into();
        }
    }
    for n in 0..40 {
        let (uuid, class) = &cards[dice.roll(cards.len() as u64) as usize];
        let kind = ["INSTANCE", "MIGRATION"][dice.roll(2) as usize];
        let body = json!({
            "allocations": {uuid: {"resources": {*class: 1, "DISK_GB": 1 + dice.roll(2)}}},
            "project_id": format!("project-{}", n % 3), "user_id": format!("user-{}", n % 5),
            "consumer_generation": null, "consumer_type": kind,
        });
        let consumer = uuid::Uuid::new_v4();
        let answer = who.put(&format!("/allocations/{consumer}"), &body);
        assert!(matches!(answer.status, 204 | 409), "{}", answer.text());
    }
    let old = who.with("OpenStack-API-Version", "placement 1.30");
    let body = json!({
        "allocations": {&cards[0].0: {"resources": {"DISK_GB": 1}}},
        "project_id": "p", "user_id": "u", "consumer_generation": null,
    });
    old.put(&format!("/allocations/{}", uuid::Uuid::new_v4()), &body).ok(204);
}

fn import(to: &Environment, from: &Serve) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kilonova"));
    command.args(["placement", "import", "--noauth", "admin", "--from", &from.url()]);
    std::fs::create_dir_all(to.state()).expect("the state directory is created");
    command.arg("--state-dir").arg(to.state());
    if let Some(database) = &to.database {
        command.args(["--database", database]);
    }
    command.output().expect("the program runs")
}

fn text_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// All providers and allocations as clients see them.
fn shown(who: &Session) -> Vec<Value> {
    let list = who.get("/resource_providers").ok(200);
    let mut providers =
        list["resource_providers"].as_array().expect("the list has providers").clone();
    providers.sort_by_key(|provider| provider["uuid"].to_string());
    let mut all = vec![who.get("/traits").ok(200), who.get("/resource_classes").ok(200)];
    for provider in providers {
        let below = format!(
            "/resource_providers/{}",
            provider["uuid"].as_str().expect("the provider has a uuid")
        );
        all.push(provider);
        for what in ["inventories", "traits", "aggregates", "usages"] {
            all.push(who.get(&format!("{below}/{what}")).ok(200));
        }
        let held = who.get(&format!("{below}/allocations")).ok(200);
        for consumer in held["allocations"].as_object().expect("the answer has allocations").keys()
        {
            all.push(who.get(&format!("/allocations/{consumer}")).ok(200));
        }
        all.push(held);
    }
    all
}

#[test]
fn a_copy_is_exact_and_may_be_made_again() {
    let there = alone();
    let source = there.start();
    random_cloud(&admin(&source));
    for mut to in Environment::all() {
        to.config = Some(ALONE.into());
        let first = import(&to, &source);
        assert_eq!(first.status.code(), Some(0), "{}", text_of(&first));
        assert!(text_of(&first).contains("verified: the copy is exact"), "{}", text_of(&first));
        if to.database.is_none() {
            use std::os::unix::fs::PermissionsExt;
            let file = std::fs::metadata(to.state().join("kilonova.db")).expect("the file exists");
            assert_eq!(file.permissions().mode() & 0o777, 0o600);
        }
        let again = import(&to, &source);
        assert_eq!(again.status.code(), Some(0), "{}", text_of(&again));
        assert!(
            text_of(&again).contains("; 0 trees and consumers were written"),
            "{}",
            text_of(&again)
        );
        let mut copy = to.start();
        let (mine, theirs) = (shown(&admin(&copy)), shown(&admin(&source)));
        assert_eq!(mine.len(), theirs.len());
        for (mine, theirs) in mine.iter().zip(&theirs) {
            assert_eq!(mine, theirs);
        }
        copy.terminate();
        let doctor = to.run("doctor", &[]);
        assert_eq!(doctor.status.code(), Some(0), "{}", text_of(&doctor));
    }
}

#[test]
fn a_second_import_takes_changes_and_reports_own_objects() {
    let (there, to) = (alone(), alone());
    let source = there.start();
    let theirs = admin(&source);
    random_cloud(&theirs);
    assert_eq!(import(&to, &source).status.code(), Some(0));
    let list = theirs.get("/resource_providers").ok(200);
    let first =
        list["resource_providers"][0]["uuid"].as_str().expect("the provider has a uuid").to_owned();
    let held = theirs.get(&format!("/resource_providers/{first}/allocations")).ok(200);
    for consumer in held["allocations"].as_object().expect("the answer has allocations").keys() {
        theirs.delete(&format!("/allocations/{consumer}")).ok(204);
    }
    let body = json!({
        "resource_provider_generation": held["resource_provider_generation"],
        "inventories": {"VCPU": {"total": 9}, "DISK_GB": {"total": 7}},
    });
    theirs.put(&format!("/resource_providers/{first}/inventories"), &body).ok(200);
    let consumer = uuid::Uuid::new_v4().to_string();
    claim(&theirs, &consumer, &first, 2).ok(204);
    let second = import(&to, &source);
    let gone = held["allocations"].as_object().expect("the answer has allocations").len();
    assert!(gone > 0);
    assert_eq!(second.status.code(), Some(1), "{}", text_of(&second));
    assert_eq!(
        text_of(&second).matches("here but not there").count(),
        gone,
        "{}",
        text_of(&second)
    );

    let mut copy = to.start();
    let ours = admin(&copy);
    assert_eq!(
        ours.get(&format!("/allocations/{consumer}")).ok(200),
        theirs.get(&format!("/allocations/{consumer}")).ok(200)
    );
    for consumer in held["allocations"].as_object().expect("the answer has allocations").keys() {
        ours.delete(&format!("/allocations/{consumer}")).ok(204);
    }
    copy.terminate();
    let third = import(&to, &source);
    assert_eq!(third.status.code(), Some(0), "{}", text_of(&third));
}

#[test]
fn an_unreachable_server_is_named() {
    let to = alone();
    let run = |options: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kilonova"));
        command.args(["placement", "import"]).args(options).arg("--state-dir").arg(to.state());
        let output = command.env_remove("OS_TOKEN").output().expect("the program runs");
        (output.status.code(), text_of(&output))
    };
    let (code, text) = run(&["--from", "http://127.0.0.1:1", "--noauth", "admin"]);
    assert!(code == Some(2) && text.contains("no answer from http://127.0.0.1:1"), "{text}");
    let (code, text) = run(&["--from", "http://127.0.0.1:1"]);
    assert!(code == Some(2) && text.contains("no credentials"), "{text}");
    let (code, text) = run(&["--cloud", "x", "--clouds", "/nowhere/clouds.yaml"]);
    assert!(code == Some(2) && text.contains("/nowhere/clouds.yaml"), "{text}");
    assert!(!to.state().exists(), "nothing is created");
    let there = alone();
    let other = there.start();
    let (code, text) = run(&["--from", &other.url(), "--noauth", "admin"]);
    assert!(code == Some(2) && text.contains("no state directory"), "{text}");
    assert!(!to.state().exists(), "nothing is created");
    let serve = to.start();
    let (code, text) = run(&["--from", &serve.url(), "--noauth", "admin"]);
    assert!(code == Some(2) && text.contains("owned by a running instance"), "{text}");
    let nobody = alone();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kilonova"));
    command.args(["placement", "import", "--noauth", "nobody", "--from", &serve.url()]);
    let output = command.arg("--state-dir").arg(nobody.state()).output().expect("the program runs");
    assert!(text_of(&output).contains("requires an admin's token"), "{}", text_of(&output));
}
