//! Microversions that are out of range or malformed.

use serde_json::json;

use crate::kit::{Cloud, Environment};

#[test]
fn an_unsupported_microversion_is_406_in_each_dialect() {
    let cloud = Cloud::new(Environment::new());
    let ask =
        |path: &str, version: &str| cloud.admin.with("OpenStack-API-Version", version).get(path);
    for version in ["2.105", "2.0", "3.1", "1.1", "2.4294967295"] {
        let answer = ask("/compute/v2.1/servers", &format!("compute {version}"));
        let sentence = format!(
            "Version {version} is not supported by the API. Minimum is 2.1 and maximum is 2.104."
        );
        assert_eq!(answer.refused(406), sentence);
        let body = json!({"computeFault": {"code": 406, "message": sentence}});
        assert_eq!(answer.json(), body);
    }
    for version in ["1.40", "0.9", "2.0"] {
        let answer = ask("/placement/resource_providers", &format!("placement {version}"));
        answer.refused_saying(406, &["Unacceptable version header", version]);
        let error = &answer.json()["errors"][0];
        assert_eq!(error["status"], 406);
        assert_eq!(error["max_version"], "1.39");
        assert_eq!(error["min_version"], "1.0");
        assert!(error.get("code").is_none(), "{error}");
    }
    let answer = ask("/accelerator/v2/devices", "accelerator 2.9");
    answer.refused_saying(406, &["Version 2.9 was requested", "[2.0, 2.3]"]);
    assert_eq!(answer.header("openstack-api-maximum-version"), Some("2.3"));
    assert_eq!(answer.header("openstack-api-version"), None);
    let answer = ask("/accelerator/v2/devices", "accelerator 1.0");
    answer.refused_saying(406, &["Version 1.0 requested but not supported", "[2.0, 2.3]"]);
}

#[test]
fn an_invalid_microversion_is_refused_as_upstream_does() {
    let cloud = Cloud::new(Environment::new());
    for wrong in ["two", "2", "2.", ".1", "2.01", "-2.1", "2.1.1", "2.x", "2.99999999999"] {
        let ask = |path: &str, service: &str| {
            cloud.admin.with("OpenStack-API-Version", &format!("{service} {wrong}")).get(path)
        };
        ask("/compute/v2.1/servers", "compute").refused_saying(400, &[wrong, "format"]);
        let answer = ask("/placement/resource_providers", "placement");
        answer.refused_saying(400, &["invalid version string", wrong]);
        assert_eq!(answer.header("openstack-api-version"), None);
        let answer = ask("/accelerator/v2/devices", "accelerator");
        answer.refused_saying(406, &["Invalid value for OpenStack-API-Version header"]);
        let old = cloud
            .admin
            .with("OpenStack-API-Version", "")
            .with("X-OpenStack-Nova-API-Version", wrong);
        old.get("/compute/v2.1/servers").refused_saying(400, &[wrong]);
    }
}

#[test]
fn latest_and_absent_are_the_ends_of_the_range() {
    let cloud = Cloud::new(Environment::new());
    for (path, service, least, most) in [
        ("/compute/v2.1/servers", "compute", "2.1", "2.104"),
        ("/placement/resource_providers", "placement", "1.0", "1.39"),
        ("/accelerator/v2/devices", "accelerator", "2.0", "2.3"),
    ] {
        let ask = |version: &str| cloud.admin.with("OpenStack-API-Version", version).get(path);
        let header_value = |version: &str| format!("{service} {version}");
        let latest = ask(&header_value("latest"));
        latest.ok(200);
        assert_eq!(latest.header("openstack-api-version"), Some(header_value(most).as_str()));
        let other = ask(&format!("volume 3.1, {service} {most}"));
        assert_eq!(other.header("openstack-api-version"), Some(header_value(most).as_str()));
        let mut none = cloud.admin.clone();
        none.headers.retain(|(name, _)| name != "OpenStack-API-Version");
        let none = none.get(path);
        assert_eq!(none.header("openstack-api-version"), Some(header_value(least).as_str()));
        assert!(none.header("vary").is_some_and(|v| v.to_lowercase().contains("api-version")));
    }
}
