//! `server explain` and `host drain` as commands: credentials, permissions and refusals.
//! `scripts/operators.py` tests what they do to a cloud.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::kit::environment::stderr;
use crate::kit::{Cloud, Environment};

/// A command that takes no cloud from the environment.
fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kilonova"));
    command.args(words).stdin(Stdio::null());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("OS_")) {
        command.env_remove(name);
    }
    command.env_remove("HOME").env("OS_CLIENT_CONFIG_FILE", "/nowhere/clouds.yaml");
    command
}

/// Runs a command with a user's credentials.
fn run(cloud: &Cloud, user: &str, word: &str, project: &str, words: &[&str]) -> Output {
    let mut command = command(words);
    command
        .env("OS_AUTH_URL", format!("http://{}/identity", cloud.serve.address))
        .env("OS_USERNAME", user)
        .env("OS_PASSWORD", word)
        .env("OS_PROJECT_NAME", project);
    command.output().expect("the program runs")
}

fn admin(cloud: &Cloud, words: &[&str]) -> Output {
    let text =
        std::fs::read_to_string(cloud.place.state().join("openrc")).expect("openrc is readable");
    let word = text.lines().find_map(|line| line.strip_prefix("export OS_PASSWORD="));
    run(cloud, "admin", word.expect("the password is in openrc"), "admin", words)
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("the output is UTF-8")
}

#[test]
fn missing_credentials_are_named() {
    for words in [["server", "explain", "x"], ["host", "drain", "x"], ["host", "undrain", "x"]] {
        let output = command(&words).output().expect("the program runs");
        let printed = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{printed}");
        assert!(
            printed.contains("OS_AUTH_URL is not set") && printed.contains("--os-cloud"),
            "{printed}"
        );
        let output =
            command(&words).args(["--os-cloud", "home"]).output().expect("the program runs");
        let printed = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{printed}");
        assert!(printed.contains("cannot read /nowhere/clouds.yaml"), "{printed}");
    }
}

#[test]
fn an_invalid_url_is_refused() {
    let mut command = command(&["capacity", "--compute-url", "foo"]);
    let output = command.env("OS_TOKEN", "any").output().expect("the program runs");
    let printed = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    assert!(printed.contains("foo/kilonova/capacity"), "{printed}");
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
        let report: Value = serde_json::from_str(&out(&named)).expect("the output is JSON");
        assert_eq!(report["id"], one.as_str(), "{report}");
        cloud.server(&cloud.admin, "one (1)", &flavor, &image);
        let printed = stderr(&admin(&cloud, &["server", "explain", "one (1)"]));
        assert!(
            printed.contains("2 servers are named one (1)") && printed.contains(&one),
            "{printed}"
        );

        cloud.user("mia", "member");
        let by_mia = |words: &[&str]| {
            let refused = run(&cloud, "mia", "mia-word", "mia-project", words);
            assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
            stderr(&refused)
        };
        let printed = by_mia(&["server", "explain", &one]);
        assert!(printed.contains("could not be found"), "{printed}");
        let printed = by_mia(&["server", "explain", "one (1)"]);
        assert!(printed.contains("no server is named one (1)"), "{printed}");
        let printed = by_mia(&["host", "drain", "virtlab606"]);
        assert!(printed.contains("Policy doesn't allow"), "{printed}");
        assert!(printed.contains("administrator credentials"), "{printed}");
        let wrong = run(&cloud, "admin", "wrong", "admin", &["host", "drain", "virtlab606"]);
        assert_eq!(wrong.status.code(), Some(2));
        assert!(stderr(&wrong).contains("refuses the login"), "{}", stderr(&wrong));

        let drained = admin(&cloud, &["host", "drain", "virtlab606", "--format", "json"]);
        let report: Value = serde_json::from_str(&out(&drained)).expect("the output is JSON");
        assert_eq!((drained.status.code(), &report["empty"]), (Some(0), &true.into()), "{report}");
        let back = admin(&cloud, &["host", "undrain", "virtlab606"]);
        assert!(out(&back).contains("is enabled"), "{}", out(&back));
        let back = admin(&cloud, &["host", "undrain", "virtlab606"]);
        assert!(out(&back).contains("already enabled"), "{}", out(&back));
    }
}

#[test]
fn an_unreachable_cloud_is_reported() {
    let cloud = Cloud::new(Environment::new());
    let Cloud { mut serve, place, admin } = cloud;
    serve.kill();
    let cloud = Cloud { serve, place, admin };
    let output = self::admin(&cloud, &["host", "drain", "virtlab606"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("no answer from"), "{}", stderr(&output));
}
