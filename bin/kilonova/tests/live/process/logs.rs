//! Logs: JSON unless written to a terminal, with the request's id, and without secrets.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::kit::cloud::{credentials, login, password};
use crate::kit::{Cloud, Environment, Serve, Session};

fn of_request<'a>(lines: &'a [Value], id: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["span"]["id"] == id).collect()
}

#[test]
fn the_lines_of_a_request_carry_the_id_of_its_answer() {
    let place = Environment::configured("[DEFAULT]\ndebug = true\n");
    let cloud = Cloud::new(place);
    let nobody = cloud.anonymous();
    let large = vec![b' '; 2 * 1024 * 1024];
    let answers = [
        nobody.get("/"),
        nobody.get("/nowhere"),
        nobody.delete("/"),
        nobody.get("/compute/v2.1/servers"),
        cloud.admin.get("/compute/v2.1/servers"),
        cloud.admin.get("/compute/v2.1/nowhere"),
        cloud.admin.delete("/compute/v2.1/servers"),
        cloud.admin.send("POST", "/compute/v2.1/servers", "application/json", &large),
        cloud.admin.get("/placement/resource_providers?frob=1"),
        cloud.admin.get("/accelerator/v2/device_profiles/none"),
        cloud.admin.get("/image/v2/images/none"),
        cloud.admin.get("/network/v2.0/networks/none"),
        cloud.admin.get("/identity/v3/users/none"),
    ];
    let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [200, 404, 405, 401, 200, 404, 405, 413, 400, 404, 404, 404, 404]);
    let lines = cloud.serve.log_lines();
    let mut seen = std::collections::BTreeSet::new();
    for answer in answers {
        let id = answer.header("x-openstack-request-id").expect("an id is present").to_owned();
        let mine = of_request(&lines, &id);
        assert!(!mine.is_empty(), "{}: no line with {id}", answer.request);
        for line in mine {
            assert!(line["span"]["path"].is_string() && line["span"]["method"].is_string());
        }
        assert!(seen.insert(id), "{}: the id was used before", answer.request);
    }
}

#[test]
fn a_clients_request_id_is_not_used_as_ours() {
    let cloud = Cloud::new(Environment::new());
    let mine = "req-00000000-0000-4000-8000-000000000000";
    let answer = cloud.admin.with("X-Openstack-Request-Id", mine).get("/compute/v2.1/servers");
    assert_ne!(answer.header("x-openstack-request-id"), Some(mine));
}

/// Provokes log lines about secrets. Returns the secrets, which no log may contain.
fn provoke(cloud: &Cloud) -> Vec<String> {
    let mut secrets = vec![password(&cloud.place)];
    let nobody = cloud.anonymous();
    let wrong = "wrong-word-8f1c";
    nobody.post("/identity/v3/auth/tokens", &credentials("admin", wrong, None)).refused(401);
    secrets.push(wrong.into());
    secrets.push(login(&nobody, "admin", &password(&cloud.place), None));
    let (ann, user, _) = cloud.user("ann", "member");
    secrets.push("ann-word".into());
    let path = format!("/identity/v3/users/{user}/application_credentials");
    let made = ann.post(&path, &json!({"application_credential": {"name": "key"}})).ok(201);
    let made = &made["application_credential"];
    let secret = made["secret"].as_str().expect("the secret is present").to_owned();
    let login = json!({"auth": {"identity": {"methods": ["application_credential"],
        "application_credential": {"id": made["id"], "secret": &secret}}}});
    nobody.post("/identity/v3/auth/tokens", &login).ok(201);
    secrets.push(secret);
    let chosen = "chosen-word-77aa";
    let body = json!({"user": {"password": chosen}});
    let changed = cloud.admin.ask("PATCH", &format!("/identity/v3/users/{user}"), &body);
    changed.ok(200);
    secrets.push(chosen.into());
    nobody.token("stranger-token-99").get("/compute/v2.1/servers").refused(401);
    secrets.push("stranger-token-99".into());
    // A valid console token, looked up as an operator's own proxy does.
    let flavor = cloud.flavor("small");
    let image = cloud.image("small");
    let server = cloud.server(&cloud.admin, "seen", &flavor, &image);
    let admin = cloud.admin.with("OpenStack-API-Version", "compute 2.104");
    let body = json!({"remote_console": {"protocol": "vnc", "type": "novnc"}});
    let made =
        admin.post(&format!("/compute/v2.1/servers/{server}/remote-consoles"), &body).ok(200);
    let url = made["remote_console"]["url"].as_str().expect("the URL is present");
    let (_, token) = url.rsplit_once("%3D").expect("the URL has a token");
    for path in ["/compute/v2.1", "/v2.1"] {
        let path = format!("{path}/os-console-auth-tokens/{token}");
        admin.get(&path).ok(200);
        admin.get(&format!("{path}/")).check();
        admin.get(&format!("{path}/more")).refused(404);
        admin.delete(&path).refused(405);
    }
    nobody.get(&format!("/console/novnc/vnc_auto.html?path=%3Ftoken%3D{token}")).check();
    nobody.get(&format!("/console/?token={token}")).check();
    secrets.push(token.to_owned());
    let state = cloud.place.state();
    secrets.push(
        std::fs::read_to_string(state.join("seal.key"))
            .expect("the key is generated")
            .trim()
            .to_owned(),
    );
    for session in [&cloud.admin, &ann] {
        let token = session.headers.iter().find(|(name, _)| name == "X-Auth-Token");
        secrets.push(token.expect("a token is present").1.clone());
    }
    secrets
}

fn check(serve: &Serve, secrets: &[String]) {
    let log = serve.log();
    for secret in secrets.iter().map(String::as_str).chain(["$argon2"]) {
        let found = log.lines().find(|line| line.contains(secret));
        assert!(found.is_none(), "{secret} is in the log: {found:?}");
    }
}

#[test]
fn no_secret_is_logged_however_much_is() {
    for place in Environment::all().into_iter().map(Environment::with_hosts) {
        let serve = place.start_with(|command| {
            command.env("RUST_LOG", "debug");
        });
        let admin = crate::kit::cloud::admin(&place, &serve);
        let cloud = Cloud { serve, place, admin };
        let secrets = provoke(&cloud);
        assert!(cloud.serve.log().contains("\"DEBUG\""), "the log has the requested level");
        check(&cloud.serve, &secrets);
    }
}

/// A loop that fails logs it once, regardless of the number of attempts, and logs its recovery.
#[test]
fn loops_log_the_first_failure_and_the_recovery() {
    const TABLES: [(&str, &str); 4] = [
        ("ALTER TABLE leases RENAME TO away_1", "ALTER TABLE away_1 RENAME TO leases"),
        (
            "ALTER TABLE enroll_certificates RENAME TO away_2",
            "ALTER TABLE away_2 RENAME TO enroll_certificates",
        ),
        (
            "ALTER TABLE sealed_secrets RENAME TO away_3",
            "ALTER TABLE away_3 RENAME TO sealed_secrets",
        ),
        (
            "ALTER TABLE schema_migrations RENAME TO away_4",
            "ALTER TABLE away_4 RENAME TO schema_migrations",
        ),
    ];
    const LINES: [(&str, &str); 4] = [
        ("cannot renew the lease on the loops; retrying", "can renew the lease on the loops again"),
        (
            "cannot read the revocation list and the authorities; retrying",
            "read the revocation list and the authorities again",
        ),
        ("cannot reload the token keys; retrying", "read the token keys again after failures"),
        ("not ready: cannot read the database", "the database can be read again"),
    ];
    for place in Environment::all() {
        let serve = place.start_with(|command| {
            command.args(["--node-listen", "127.0.0.1:0"]);
        });
        let nobody = Session::anonymous(serve.address);
        TABLES.iter().for_each(|(away, _)| place.sql(away));
        // The slowest loops run every five seconds.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(13) {
            nobody.get("/readyz").check().refused(503);
            std::thread::sleep(Duration::from_millis(500));
        }
        let counts = |log: &str| LINES.map(|(fails, _)| log.matches(fails).count());
        assert_eq!(counts(&serve.log()), [1; 4], "{}", serve.log());
        TABLES.iter().for_each(|(_, back)| place.sql(back));
        let begun = Instant::now();
        loop {
            nobody.get("/readyz");
            let log = serve.log();
            let missing = LINES.iter().find(|(_, recovers)| !log.contains(recovers));
            let Some((_, missing)) = missing else { break };
            assert!(begun.elapsed() < Duration::from_secs(60), "{missing}: {log}");
            std::thread::sleep(Duration::from_millis(200));
        }
        assert_eq!(counts(&serve.log()), [1; 4], "{}", serve.log());
    }
}

#[test]
fn a_terminal_gets_lines_for_people() {
    let place = Environment::new();
    let serve = place.command("serve");
    let words: Vec<String> = std::iter::once(serve.get_program())
        .chain(serve.get_args())
        .map(|word| format!("'{}'", word.to_string_lossy()))
        .collect();
    // `script` runs the command on a terminal of its own.
    let command = format!("echo pid=$$; exec {} --listen 127.0.0.1:0", words.join(" "));
    let started = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .env_remove("RUST_LOG")
        .env_remove("NO_COLOR")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn();
    let mut script = match started {
        Ok(script) => script,
        Err(error) => return kilonova_testkit::skip(format!("no terminal: script: {error}")),
    };
    let mut lines = BufReader::new(script.stdout.take().expect("the output is piped")).lines();
    let mut line = || lines.next().map(|line| line.expect("the output is UTF-8"));
    let pid = line().expect("the shell names itself");
    let pid = pid.trim().strip_prefix("pid=").and_then(|pid| pid.parse().ok());
    let pid = pid.and_then(rustix::process::Pid::from_raw).expect("the shell names its process");
    while !line().expect("the server starts").starts_with("kilonova: ready on ") {}
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("the signal is sent");
    let logged: Vec<String> = std::iter::from_fn(line).collect();
    assert!(script.wait().expect("the process ends").success(), "{logged:?}");
    let stops = logged.iter().find(|line| line.contains("stopping"));
    let stops = stops.unwrap_or_else(|| panic!("no line reports the shutdown: {logged:?}"));
    assert!(stops.contains("INFO") && !stops.contains('{'), "{stops}");
    assert!(stops.contains('\u{1b}'), "a terminal has colours: {stops:?}");
}

/// A log that cannot be written does not disturb requests; the lost lines are counted.
#[test]
fn a_log_that_cannot_be_written_is_dropped() {
    let full = || std::fs::File::options().write(true).open("/dev/full").expect("it is writable");
    let place = Environment::new();
    let serve = place.start_with_log(full().into());
    let admin = crate::kit::cloud::admin(&place, &serve);
    let mut cloud = Cloud { serve, place, admin };
    let nobody = cloud.anonymous();
    for _ in 0..3 {
        nobody.post("/identity/v3/auth/tokens", &credentials("admin", "wrong", None)).refused(401);
        login(&nobody, "admin", &password(&cloud.place), None);
    }
    let text = cloud.admin.get("/metrics").text();
    let lost = text.lines().find_map(|line| line.strip_prefix("kilonova_log_lines_lost_total "));
    assert!(lost.and_then(|lost| lost.parse().ok()).unwrap_or(0) > 0, "{text}");
    assert!(cloud.serve.terminate().0.success());
}
