//! `kilonova doctor`: the audit for people and for programs.

use serde_json::{Value, json};

use crate::kit::place::stderr;
use crate::kit::{Cloud, Place};

#[test]
fn a_clean_ledger_is_told_in_both_forms_while_the_server_runs() {
    for cloud in Cloud::with_hosts() {
        let (flavor, image) = (cloud.flavor("small"), cloud.image("raw"));
        cloud.server(&cloud.admin, "one", &flavor, &image);
        let table = cloud.place.run("doctor", &[]);
        assert_eq!(table.status.code(), Some(0), "{}", stderr(&table));
        let text = String::from_utf8(table.stdout).expect("text");
        let areas = ["configuration", "store", "nodes", "clock", "operations", "devices", "ledger"];
        for area in areas {
            let ok = |line: &str| {
                let mut words = line.split_whitespace();
                words.next() == Some(area) && words.next() == Some("ok")
            };
            assert!(text.lines().any(ok), "{area}: {text}");
        }
        let output = cloud.place.run("doctor", &["--format", "json"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(told["clean"], true);
        assert!(told["rules"].as_array().is_some_and(|rules| rules.len() > 30), "{told}");
        assert_eq!(told["hosts"][0]["up"], true, "{told}");
        let quiet = |area: &Value| area["name"] == "files" || area["state"] == "ok";
        assert!(told["areas"].as_array().is_some_and(|areas| areas.iter().all(quiet)), "{told}");
    }
}

#[test]
fn a_broken_rule_is_named_and_the_exit_code_says_so() {
    let cloud = Cloud::new(Place::new().with_hosts());
    let (flavor, image) = (cloud.flavor("small"), cloud.image("raw"));
    cloud.server(&cloud.admin, "one", &flavor, &image);
    let Cloud { mut serve, place, .. } = cloud;
    serve.kill();
    let database = rusqlite::Connection::open(place.state().join("kilonova.db")).expect("it opens");
    let broken = "UPDATE inventories SET used = used + 1 WHERE class = 'VCPU'";
    let rows = database.execute(broken, []).expect("the ledger is damaged");
    assert!(rows > 0, "there is an inventory to damage");
    drop(database);
    let table = place.run("doctor", &[]);
    assert_eq!(table.status.code(), Some(1), "{}", stderr(&table));
    assert!(String::from_utf8_lossy(&table.stdout).contains("BROKEN by "));
    let output = place.run("doctor", &["--format", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(told["clean"], false);
    let hit = |rule: &Value| rule["broken_by"] != json!([]);
    assert!(told["rules"].as_array().is_some_and(|rules| rules.iter().any(hit)), "{told}");
}

/// A row that a clock wrote which was ahead once is an error, until an operator says that the clock
/// is right now.
#[test]
fn rows_of_the_future_are_found_and_can_be_redated() {
    let cloud = Cloud::new(Place::new().with_hosts());
    let (flavor, image) = (cloud.flavor("small"), cloud.image("raw"));
    cloud.server(&cloud.admin, "one", &flavor, &image);
    let Cloud { mut serve, place, .. } = cloud;
    serve.kill();
    let database = rusqlite::Connection::open(place.state().join("kilonova.db")).expect("it opens");
    for table in ["servers", "operations"] {
        let ahead = format!("UPDATE {table} SET updated_at = updated_at + 86400000000");
        assert!(database.execute(&ahead, []).expect("written") > 0);
    }
    drop(database);
    for _ in 0..2 {
        let output = place.run("doctor", &[]);
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(String::from_utf8_lossy(&output.stdout).contains("kilonova doctor --redate"));
    }
    let output = place.run("doctor", &["--redate"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.starts_with("Rows that got the present time: 0 of hosts, 1 of operations, 1 of"));
    let again = place.run("doctor", &["--redate", "--format", "json"]);
    let told: Value = serde_json::from_slice(&again.stdout).expect("JSON");
    assert_eq!(told["redated"], json!({"hosts": 0, "operations": 0, "servers": 0}));
    assert_eq!(told["clean"], true);
}

#[test]
fn no_database_is_told_apart_from_a_broken_one() {
    let place = Place::new();
    let output = place.run("doctor", &[]);
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    assert!(said.contains("no state directory") && said.contains("--state-dir"), "{said}");
    assert!(!String::from_utf8_lossy(&output.stdout).contains("files"), "nothing is said to be ok");
    assert!(!place.state().exists(), "it only reads");
    std::fs::create_dir(place.state()).expect("made");
    let output = place.run("doctor", &[]);
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    assert!(said.contains("no database at") && said.contains("kilonova.db"), "{said}");

    let broken = place.write("broken.db", "this is no database, whatever it is called");
    let mut command = place.command("doctor");
    let output = command.args(["--database", &format!("sqlite:///{}", broken.display())]).output();
    let output = output.expect("it runs");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(told.contains("ERROR (store)") && told.contains("last good backup"), "{told}");

    let empty = place.write("empty.db", "");
    let url = format!("sqlite:///{}", empty.display());
    for url in [&url, "postgresql://kn@127.0.0.1:1/kn?connect_timeout=2"] {
        let mut command = place.command("doctor");
        let output = command.args(["--database", url]).output().expect("it runs");
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    }
}
