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
        let areas = [
            "configuration",
            "store",
            "secrets",
            "images",
            "networks",
            "nodes",
            "clock",
            "operations",
            "devices",
            "routers",
            "ledger",
        ];
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
/// now correct.
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

/// The exit status, and the findings of an area as level, text and remedy.
fn findings(place: &Environment, area: &str) -> (Option<i32>, Vec<(String, String)>) {
    let output = place.run("doctor", &["--strict", "--format", "json"]);
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let found = report["findings"].as_array().expect("a list").iter();
    let found = found.filter(|one| one["area"] == area);
    let found = found.map(|one| {
        (text(&one["level"]), format!("{} / {}", text(&one["what"]), text(&one["remedy"])))
    });
    (output.status.code(), found.collect())
}

#[test]
fn keys_that_do_not_fit_the_secrets_are_found_and_none_is_created() {
    for place in Environment::all() {
        let mut serve = place.start_with(|command| {
            command.args(["--node-listen", "127.0.0.1:0"]);
        });
        serve.terminate();
        let sees = |code: i32, level: &str, words: &str| {
            let (status, found) = findings(&place, "secrets");
            let is = |one: &(String, String)| one.0 == level && one.1.contains(words);
            assert!(found.iter().any(is), "{words}: {found:?}");
            assert_eq!(status, Some(code), "{found:?}");
        };
        assert_eq!(findings(&place, "secrets"), (Some(0), vec![]));
        let key = place.state().join("seal.key");
        let kept = place.file("kept");
        std::fs::rename(&key, &kept).expect("the key exists");
        sees(1, "error", "copy it from a controller of this cloud");
        assert!(!key.exists(), "doctor creates nothing");
        let other = "7G2qD2m8yQHkqJX6n8bSvP5XbY3m0a4Jj3cJk0y1xYQ=\n";
        std::fs::copy(&kept, &key).expect("the key file is copied with its mode");
        std::fs::write(&key, other).expect("the file is written");
        sees(1, "error", "which is not in the key file");
        std::fs::copy(&kept, &key).expect("the key is copied");
        assert_eq!(findings(&place, "secrets"), (Some(0), vec![]));
        // Simulates rows that are two hundred days old, and then a damaged row.
        place.sql("UPDATE sealed_secrets SET made_at = made_at - 17280000000000");
        sees(0, "note", "kilonova keys fernet-rotate");
        place.sql(
            "UPDATE sealed_secrets SET number = number + 50 WHERE kind = 'fernet' AND number = 0",
        );
        sees(1, "error", "the sealed secret fernet/50 cannot be unsealed");
        let output = place.run("doctor", &[]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("secrets        error") && !text.contains("7G2q"), "{text}");
    }
}

#[test]
fn a_bucket_that_cannot_be_reached_is_found() {
    let at = |endpoint: &str, bucket: &str, more: &str| {
        format!(
            "[glance_store]\nstores = s3\ns3_store_host = {endpoint}\ns3_store_bucket = {bucket}\n\
             s3_store_access_key = id\ns3_store_secret_key = hidden\n{more}"
        )
    };
    let place = Environment::configured(&at("http://127.0.0.1:1", "images", ""));
    let mut serve = place.start();
    serve.terminate();
    let (status, found) = findings(&place, "images");
    let [(level, what)] = &found[..] else { panic!("{found:?}") };
    assert_eq!((status, level.as_str()), (Some(1), "error"), "{what}");
    assert!(what.contains("bucket images at http://127.0.0.1:1 cannot be used"), "{what}");
    assert!(!what.contains("hidden"), "{what}");
    let Ok(server) = std::env::var("KILONOVA_TEST_S3") else {
        return kilonova_testkit::skip_part("no object store: KILONOVA_TEST_S3 names no server");
    };
    let bucket = format!("doctor-{}", std::process::id());
    let place = place.reconfigured(&at(&server, &bucket, ""));
    let (status, found) = findings(&place, "images");
    assert!(status == Some(1) && found[0].1.contains("NoSuchBucket"), "{found:?}");
    let place = place.reconfigured(&at(&server, &bucket, "s3_store_create_bucket_on_put = true\n"));
    for _ in 0..2 {
        let output = place.run("doctor", &[]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("images         ok       the first image creates bucket"), "{text}");
    }
}

/// The state of an area in a report.
fn state<'a>(report: &'a Value, area: &str) -> &'a str {
    let areas = report["areas"].as_array().expect("a list");
    let found = areas.iter().find(|one| one["name"] == area);
    found.and_then(|one| one["state"].as_str()).unwrap_or("missing")
}

#[test]
fn the_checks_end_at_a_schema_that_is_older() {
    for place in Environment::all() {
        place.start().terminate();
        place.sql("DELETE FROM schema_migrations WHERE position = 3");
        let output = place.run("doctor", &[]);
        let printed = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{printed}");
        assert!(
            printed.contains("the schema is older") && !printed.contains("SELECT"),
            "{printed}"
        );
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("1 of ") && text.contains("migrations are missing"), "{text}");
        assert!(
            text.contains("ledger         skipped  not checked: the schema is older"),
            "{text}"
        );
        let output = place.run("doctor", &["--format", "json"]);
        let report: Value = serde_json::from_slice(&output.stdout).expect("the output is JSON");
        assert_eq!((state(&report, "store"), state(&report, "secrets")), ("error", "skipped"));
        assert!(report["ended"].as_str().is_some_and(|why| printed.contains(why)), "{report}");
    }
}

#[test]
fn checks_that_the_configuration_prevents_are_skipped() {
    let place = Environment::new();
    place.start().terminate();
    let place = place.reconfigured("[nonsense]\nx = 1\n");
    let output = place.run("doctor", &["--format", "json"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).expect("the output is JSON");
    for area in ["tls", "secrets", "images", "networks"] {
        assert_eq!(state(&report, area), "skipped", "{report}");
    }
    assert_eq!(report["ended"], Value::Null);
    let nowhere = Environment::new();
    let output = nowhere.run("doctor", &["--format", "json"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).expect("the output is JSON");
    let why = report["ended"].as_str().unwrap_or_default();
    assert!(why.contains("no state directory"), "{report}");
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
