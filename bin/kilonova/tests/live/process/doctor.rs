//! `kilonova doctor`: the audit as text and as JSON.

use serde_json::{Value, json};

use crate::kit::environment::stderr;
use crate::kit::{Cloud, Environment};

#[test]
fn a_clean_ledger_is_reported_in_both_forms_while_the_server_runs() {
    for cloud in Cloud::with_hosts() {
        let (flavor, image) = (cloud.flavor("small"), cloud.image("raw"));
        cloud.server(&cloud.admin, "one", &flavor, &image);
        let table = cloud.place.run("doctor", &[]);
        assert_eq!(table.status.code(), Some(0), "{}", stderr(&table));
        let text = String::from_utf8(table.stdout).expect("the output is UTF-8");
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
        let report: Value = serde_json::from_slice(&output.stdout).expect("the output is JSON");
        assert_eq!(report["clean"], true);
        assert!(report["rules"].as_array().is_some_and(|rules| rules.len() > 30), "{report}");
        assert_eq!(report["hosts"][0]["up"], true, "{report}");
        let quiet = |area: &Value| area["name"] == "files" || area["state"] == "ok";
        assert!(
            report["areas"].as_array().is_some_and(|areas| areas.iter().all(quiet)),
            "{report}"
        );
    }
}

#[test]
fn a_broken_rule_is_named_and_the_exit_code_says_so() {
    let cloud = Cloud::new(Environment::new().with_hosts());
    let (flavor, image) = (cloud.flavor("small"), cloud.image("raw"));
    cloud.server(&cloud.admin, "one", &flavor, &image);
    let Cloud { mut serve, place, .. } = cloud;
    serve.kill();
    let database =
        rusqlite::Connection::open(place.state().join("kilonova.db")).expect("the database opens");
    let broken = "UPDATE inventories SET used = used + 1 WHERE class = 'VCPU'";
    let rows = database.execute(broken, []).expect("the statement runs");
    assert!(rows > 0, "there is an inventory to damage");
    drop(database);
    let table = place.run("doctor", &[]);
    assert_eq!(table.status.code(), Some(1), "{}", stderr(&table));
    assert!(String::from_utf8_lossy(&table.stdout).contains("BROKEN by "));
    let output = place.run("doctor", &["--format", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).expect("the output is JSON");
    assert_eq!(report["clean"], false);
    let hit = |rule: &Value| rule["broken_by"] != json!([]);
    assert!(report["rules"].as_array().is_some_and(|rules| rules.iter().any(hit)), "{report}");
}

/// A row written by a clock that was ahead is an error until an operator confirms that the clock is
/// right now.
#[test]
fn rows_of_the_future_are_found_and_can_be_redated() {
    let cloud = Cloud::new(Environment::new().with_hosts());
    let (flavor, image) = (cloud.flavor("small"), cloud.image("raw"));
    cloud.server(&cloud.admin, "one", &flavor, &image);
    let Cloud { mut serve, place, .. } = cloud;
    serve.kill();
    let database =
        rusqlite::Connection::open(place.state().join("kilonova.db")).expect("the database opens");
    for table in ["servers", "operations"] {
        let ahead = format!("UPDATE {table} SET updated_at = updated_at + 86400000000");
        assert!(database.execute(&ahead, []).expect("the statement runs") > 0);
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
    assert!(text.starts_with("Times set to now: 0 of hosts, 1 of operations, 1 of"));
    let again = place.run("doctor", &["--redate", "--format", "json"]);
    let report: Value = serde_json::from_slice(&again.stdout).expect("the output is JSON");
    assert_eq!(report["redated"], json!({"hosts": 0, "operations": 0, "servers": 0}));
    assert_eq!(report["clean"], true);
}

#[test]
fn no_database_is_distinguished_from_a_broken_one() {
    let place = Environment::new();
    let output = place.run("doctor", &[]);
    assert_eq!(output.status.code(), Some(2));
    let printed = stderr(&output);
    assert!(printed.contains("no state directory") && printed.contains("--state-dir"), "{printed}");
    assert!(!String::from_utf8_lossy(&output.stdout).contains("files"), "no area is shown as ok");
    assert!(!place.state().exists(), "the command only reads");
    std::fs::create_dir(place.state()).expect("the directory is created");
    let output = place.run("doctor", &[]);
    assert_eq!(output.status.code(), Some(2));
    let printed = stderr(&output);
    assert!(printed.contains("no database at") && printed.contains("kilonova.db"), "{printed}");

    let broken = place.write("broken.db", "this is not a database, whatever it is called");
    let mut command = place.command("doctor");
    let output = command.args(["--database", &format!("sqlite:///{}", broken.display())]).output();
    let output = output.expect("the program runs");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(report.contains("ERROR (store)") && report.contains("last good backup"), "{report}");

    let empty = place.write("empty.db", "");
    let url = format!("sqlite:///{}", empty.display());
    for url in [&url, "postgresql://kn@127.0.0.1:1/kn?connect_timeout=2"] {
        let mut command = place.command("doctor");
        let output = command.args(["--database", url]).output().expect("the program runs");
        let printed = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{printed}");
        assert_eq!(printed.trim_end().lines().count(), 1, "{printed}");
    }
}
