//! `server explain` and `host drain` as commands: how they get in, whom they serve, what they refuse.
//! What they do to a cloud is in `scripts/operators.py`.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::kit::place::stderr;
use crate::kit::{Cloud, Place};

/// A command with nothing of the environment's clouds.
fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kilonova"));
    command.args(words).stdin(Stdio::null());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("OS_")) {
        command.env_remove(name);
    }
    command.env_remove("HOME").env("OS_CLIENT_CONFIG_FILE", "/nowhere/clouds.yaml");
    command
}

/// The same by somebody on a cloud.
fn run(cloud: &Cloud, user: &str, word: &str, project: &str, words: &[&str]) -> Output {
    let mut command = command(words);
    command
        .env("OS_AUTH_URL", format!("http://{}/identity", cloud.serve.address))
        .env("OS_USERNAME", user)
        .env("OS_PASSWORD", word)
        .env("OS_PROJECT_NAME", project);
    command.output().expect("it runs")
}

fn admin(cloud: &Cloud, words: &[&str]) -> Output {
    let text = std::fs::read_to_string(cloud.place.state().join("openrc")).expect("an openrc");
    let word = text.lines().find_map(|line| line.strip_prefix("export OS_PASSWORD="));
    run(cloud, "admin", word.expect("a password"), "admin", words)
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

#[test]
fn without_credentials_they_say_what_is_missing() {
    for words in [["server", "explain", "x"], ["host", "drain", "x"], ["host", "undrain", "x"]] {
        let output = command(&words).output().expect("it runs");
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("OS_AUTH_URL is not set") && said.contains("--os-cloud"), "{said}");
        let output = command(&words).args(["--os-cloud", "home"]).output().expect("it runs");
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("cannot read /nowhere/clouds.yaml"), "{said}");
    }
}

#[test]
fn an_admin_is_served_and_others_are_refused() {
    for cloud in Cloud::with_hosts() {
        let (flavor, image) = (cloud.flavor("small"), cloud.image("raw"));
        let one = cloud.server(&cloud.admin, "one (1)", &flavor, &image);
        let page = admin(&cloud, &["server", "explain", &one]);
        assert_eq!(page.status.code(), Some(0), "{}", stderr(&page));
        assert!(out(&page).contains("is active, on host"), "{}", out(&page));
        let named = admin(&cloud, &["server", "explain", "one (1)", "--format", "json"]);
        let told: Value = serde_json::from_str(&out(&named)).expect("JSON");
        assert_eq!(told["id"], one.as_str(), "{told}");
        cloud.server(&cloud.admin, "one (1)", &flavor, &image);
        let said = stderr(&admin(&cloud, &["server", "explain", "one (1)"]));
        assert!(said.contains("2 servers are called one (1)") && said.contains(&one), "{said}");

        cloud.user("mia", "member");
        let by_mia = |words: &[&str]| {
            let refused = run(&cloud, "mia", "mia-word", "mia-project", words);
            assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
            stderr(&refused)
        };
        let said = by_mia(&["server", "explain", &one]);
        assert!(said.contains("could not be found"), "{said}");
        let said = by_mia(&["server", "explain", "one (1)"]);
        assert!(said.contains("no server is called one (1)"), "{said}");
        let said = by_mia(&["host", "drain", "virtlab606"]);
        assert!(said.contains("Policy doesn't allow"), "{said}");
        assert!(said.contains("credentials of an administrator"), "{said}");
        let wrong = run(&cloud, "admin", "wrong", "admin", &["host", "drain", "virtlab606"]);
        assert_eq!(wrong.status.code(), Some(2));
        assert!(stderr(&wrong).contains("refuses the login"), "{}", stderr(&wrong));

        let drained = admin(&cloud, &["host", "drain", "virtlab606", "--format", "json"]);
        let told: Value = serde_json::from_str(&out(&drained)).expect("JSON");
        assert_eq!((drained.status.code(), &told["empty"]), (Some(0), &true.into()), "{told}");
        let back = admin(&cloud, &["host", "undrain", "virtlab606"]);
        assert!(out(&back).contains("takes servers again"), "{}", out(&back));
        let back = admin(&cloud, &["host", "undrain", "virtlab606"]);
        assert!(out(&back).contains("enabled already"), "{}", out(&back));
    }
}

#[test]
fn a_cloud_that_is_away_is_told() {
    let cloud = Cloud::new(Place::new());
    let Cloud { mut serve, place, admin } = cloud;
    serve.kill();
    let cloud = Cloud { serve, place, admin };
    let output = self::admin(&cloud, &["host", "drain", "virtlab606"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("no answer from"), "{}", stderr(&output));
}
