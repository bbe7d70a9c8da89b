//! `kilonova database copy`: refused while a controller runs, and no controller starts on an incomplete copy.

use std::process::{Command, Output, Stdio};

use crate::kit::cloud::admin;
use crate::kit::environment::stderr;
use crate::kit::{Cloud, Environment};

fn copy(from: &str, to: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kilonova"));
    command.args(["database", "copy", "--from", from, "--to", to]).stdin(Stdio::null());
    command.env_remove("RUST_LOG").output().expect("the program runs")
}

fn url(place: &Environment) -> String {
    let file = || format!("sqlite:///{}", place.state().join("kilonova.db").display());
    place.database.clone().unwrap_or_else(file)
}

#[test]
fn a_cloud_moves_to_a_copy_once_its_controller_has_stopped() {
    for mut cloud in Cloud::all() {
        let flavor = cloud.flavor("moved");
        let target = cloud.place.file("target.db");
        let to = format!("sqlite:///{}", target.display());
        let output = copy(&url(&cloud.place), &to);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        let said = stderr(&output);
        assert!(said.contains("controller") && !said.contains("--state-dir"), "{said}");
        cloud.serve.terminate();
        let output = copy(&url(&cloud.place), &to);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let said = String::from_utf8_lossy(&output.stdout);
        for words in ["flavors ", "Reset: change_log, change_log_start, leases.", "seal.key"] {
            assert!(said.contains(words), "{words:?} is not in: {said}");
        }
        let mut moved = Environment::new();
        moved.database = Some(to.clone());
        moved.share_seal(&cloud.place);
        std::fs::copy(cloud.place.state().join("openrc"), moved.state().join("openrc"))
            .expect("the file is copied");
        std::fs::copy(cloud.place.state().join("clouds.yaml"), moved.state().join("clouds.yaml"))
            .expect("the file is copied");
        let serve = moved.start();
        admin(&moved, &serve).get(&format!("/compute/v2.1/flavors/{flavor}")).ok(200);
        let doctor = moved.run("doctor", &[]);
        assert_eq!(doctor.status.code(), Some(0), "{}", String::from_utf8_lossy(&doctor.stdout));
        let output = copy(&to, &url(&cloud.place));
        assert_eq!(output.status.code(), Some(2), "the target is in use: {}", stderr(&output));
    }
}

#[test]
fn no_controller_starts_on_an_incomplete_copy() {
    let mut cloud = Cloud::new(Environment::new());
    cloud.serve.terminate();
    let file = cloud.place.state().join("kilonova.db");
    let database = rusqlite::Connection::open(file).expect("the database opens");
    let mark =
        "INSERT INTO schema_migrations (name, position) VALUES ('incomplete-copy-contract', 9000)";
    database.execute(mark, []).expect("the mark is written");
    for command in ["serve", "doctor"] {
        let options: &[&str] = if command == "serve" { &["--listen", "127.0.0.1:0"] } else { &[] };
        let output = cloud.place.run(command, options);
        let said = format!("{}{}", stderr(&output), String::from_utf8_lossy(&output.stdout));
        assert_eq!(output.status.code(), Some(2), "{command}: {said}");
        assert!(said.contains("incomplete copy"), "{command}: {said}");
    }
    let output = cloud.place.tool(&["keys", "list"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("incomplete copy"), "{}", stderr(&output));
}
