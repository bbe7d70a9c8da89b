//! An operator's nova.conf: `config check` lists the effect of each option, and `serve` starts with the file and
//! logs the options without effect.

use std::process::{Command, Output};

use serde_json::Value;

use crate::kit::Environment;
use crate::kit::environment::stderr;

const NOVA: &str = include_str!("../../../src/config/samples/nova.conf");

fn check(place: &Environment, text: &str, more: &[&str]) -> Output {
    let file = place.write("nova.conf", text);
    let mut command = Command::new(env!("CARGO_BIN_EXE_kilonova"));
    command.args(["config", "check", "--nova-conf"]).arg(file).args(more);
    command.output().expect("the program runs")
}

/// The file without `[quota]` and the databases, whose options are refused.
fn without_refused() -> String {
    let mut group = "";
    let kept = NOVA.lines().filter(|line| {
        if line.starts_with('[') {
            group = line;
        }
        !(line.contains(" = ") && ["[quota]", "[database]"].contains(&group))
    });
    kept.flat_map(|line| [line, "\n"]).collect()
}

#[test]
fn config_check_lists_what_is_refused_without_effect_and_used() {
    let place = Environment::new();
    let output = check(&place, NOVA, &[]);
    let printed = String::from_utf8(output.stdout.clone()).expect("the output is UTF-8");
    assert_eq!(output.status.code(), Some(1), "{printed}{}", stderr(&output));
    for part in [
        "(nova.conf): 5 refused, ",
        "[quota] cores",
        "openstack quota set --class default",
        "  [conductor] workers\n",
        "[keystone_authtoken] auth_url",
        "kilonova serve\n",
    ] {
        assert!(printed.contains(part), "{part:?} is not in:\n{printed}");
    }
    assert!(!printed.contains("sesame"), "a password is shown:\n{printed}");
    let output = check(&place, &without_refused(), &["--format", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let document: Value = serde_json::from_slice(&output.stdout).expect("the output is JSON");
    let file = &document["files"][0];
    assert_eq!((&document["refused"], &file["refused"]), (&false.into(), &Value::Array(vec![])));
    let rows = |list: &str| file[list].as_array().map_or(0, Vec::len);
    let options = without_refused().lines().filter(|line| line.contains(" = ")).count();
    assert_eq!(rows("used") + rows("no_effect"), options, "{document:#}");
    let output = check(&place, "[nowhere\n", &[]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}

#[test]
fn serve_starts_with_it_and_logs_the_options_without_effect() {
    let place = Environment::configured(NOVA);
    let output = place.run("serve", &["--listen", "127.0.0.1:0"]);
    let printed = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    assert!(printed.contains("[quota] instances: expected 10."), "{printed}");
    let later = format!("{}\n[os_brick]\nlock_path = /run/lock\n", without_refused());
    let place = Environment::configured(&later);
    let serve = place.start_with(|command| {
        command.args(["--log-format", "json"]);
    });
    let lines = serve.log_lines();
    let noted = |level: &str, group: &str, option: &str| {
        lines.iter().any(|line| {
            let options = line["options"].as_str().unwrap_or_default();
            line["level"] == level
                && line["group"] == group
                && options.split(", ").any(|one| one == option)
                && line["why"].as_str().is_some_and(|why| !why.is_empty())
        })
    };
    assert!(noted("WARN", "os_brick", "lock_path"), "{}", serve.log());
    assert!(noted("INFO", "DEFAULT", "transport_url"), "{}", serve.log());
    assert!(!serve.log().contains("sesame"), "a password is logged");
}
