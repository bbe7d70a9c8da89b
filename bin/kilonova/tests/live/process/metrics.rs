//! `/metrics`: who may read it, and that its counts are right.

use std::time::{Duration, Instant};

use crate::kit::cloud::credentials;
use crate::kit::{Cloud, Environment, Session};

fn scraper(cloud: &Cloud) -> Session {
    let token = std::fs::read_to_string(cloud.place.state().join("metrics.token"));
    let bearer = format!("Bearer {}", token.expect("the token is readable").trim());
    Session::anonymous(cloud.serve.address).with("Authorization", &bearer)
}

/// The value of the line that begins with `start`.
fn value(text: &str, start: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with(start))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[test]
fn metrics_need_an_admin_or_the_metrics_token() {
    let cloud = &Cloud::all()[0];
    let nobody = cloud.anonymous();
    let (member, _, _) = cloud.user("ann", "member");
    for stranger in [
        nobody.clone(),
        member,
        nobody.with("Authorization", "Bearer wrong"),
        nobody.with("Authorization", "Bearer "),
    ] {
        let answer = stranger.get("/metrics");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        answer.refused_saying(401, &["metrics.token"]);
    }
    for reader in [cloud.admin.clone(), scraper(cloud)] {
        let answer = reader.get("/metrics");
        assert_eq!(answer.status, 200);
        let kind = answer.header("content-type").unwrap_or_default();
        assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
        assert!(answer.text().ends_with("# EOF\n"));
    }
}

#[test]
fn it_counts_answers_devices_and_servers() {
    for cloud in Cloud::with_hosts() {
        let scraper = scraper(&cloud);
        let begun = Instant::now();
        while value(&scraper.get("/metrics").text(), "kilonova_hosts{state=\"up\"}") != Some(2.0) {
            assert!(begun.elapsed() < Duration::from_secs(20), "the hosts are not up");
            std::thread::sleep(Duration::from_millis(30));
        }
        let (flavor, image) = (cloud.flavor("small"), cloud.image("tiny"));
        cloud.server(&cloud.admin, "one", &flavor, &image);
        cloud.admin.get("/compute/v2.1/servers/nothing").refused(404);
        let text = scraper.get("/metrics").text();
        for (start, wanted) in [
            ("kilonova_servers{state=\"active\"}", 1.0),
            (
                "kilonova_devices{kind=\"GPU\",status=\"enabled\",health=\"healthy\",present=\"yes\"}",
                4.0,
            ),
            ("kilonova_attach_handles{attach_type=\"MDEV\",state=\"free\"}", 64.0),
            ("kilonova_binds_total{road=\"server\",outcome=\"bound\"}", 0.0),
            ("kilonova_nova_events_waiting", 0.0),
            (
                "kilonova_http_requests_total{service=\"compute\",method=\"GET\",status=\"404\"}",
                1.0,
            ),
        ] {
            assert_eq!(value(&text, start), Some(wanted), "{start}\n{text}");
        }
        for name in ["kilonova_host_silence_seconds", "kilonova_host_report_age_seconds"] {
            let age = value(&text, &format!("{name}{{host=\"virtlab606\"}}"));
            assert!(age.is_some_and(|seconds| (0.0..60.0).contains(&seconds)), "{name}: {text}");
        }
    }
}

#[test]
fn it_counts_logins_and_those_that_are_refused() {
    let options = "[security_compliance]\nlockout_failure_attempts = 2\n";
    let cloud = Cloud::new(Environment::configured(options));
    cloud.user("ann", "member");
    let scraper = scraper(&cloud);
    let hashes = || value(&scraper.get("/metrics").text(), "kilonova_password_hashes_total ");
    let before = hashes().expect("hashes are counted");
    assert!(before >= 1.0, "the administrator and ann have logged in");
    for n in 0..5 {
        let wrong = credentials("ann", &format!("wrong-{n}"), None);
        cloud.anonymous().post("/identity/v3/auth/tokens", &wrong).refused(401);
    }
    assert_eq!(hashes(), Some(before + 2.0), "a locked account costs no hash");
    let text = scraper.get("/metrics").text();
    for (start, wanted) in [
        ("kilonova_logins_refused_total{cause=\"locked\"}", 3.0),
        ("kilonova_logins_refused_total{cause=\"queue\"}", 0.0),
        ("kilonova_logins_waiting ", 0.0),
        ("kilonova_login_hashes_before ", 0.0),
    ] {
        assert_eq!(value(&text, start), Some(wanted), "{start}\n{text}");
    }
}
