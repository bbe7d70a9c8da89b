//! Policy rules that govern a part of a request or of an answer.

use kilonova_access::Enforcer;
use kilonova_policy::{Defaults, Policy, Rule};
use kilonova_store::testing::CrashPlan;
use kilonova_wire::Dialect;
use serde_json::{Value, json};

use crate::kit::{ANN, Client, Cloud, RunningCloud, client, hosts};

/// A service's table of rules with these lines of a policy file.
fn enforcer(rules: &'static [Rule], dialect: Dialect, text: &str) -> Enforcer {
    let own = kilonova_policy::read(text).expect("the policy file is valid");
    let policy = Policy::build(rules, &own, Defaults::default()).expect("the policy is valid");
    Enforcer::new(policy.into(), dialect)
}

/// The same services with these policy rules for compute.
fn with_policy(running: &RunningCloud, text: &str) -> Client {
    let rules = enforcer(kilonova_compute_app::RULES, Dialect::Compute, text);
    client(running.compute.clone().with_policy(rules))
}

fn request_on_networks(
    cloud: &Cloud,
    running: &RunningCloud,
    flavor: &str,
    networks: Value,
) -> Value {
    let mut boot_request = running.boot_request(cloud, "one", flavor);
    boot_request["server"]["networks"] = networks;
    boot_request
}

/// An external network, shared with all projects or not.
async fn external(running: &RunningCloud, name: &str, shared: bool, cidr: &str) -> String {
    let body = json!({"network": {"name": name, "router:external": true, "shared": shared}});
    let net = running.neutron("admin", "POST /networks", Some(body)).await.expect(201);
    let id = net["network"]["id"].as_str().expect("the answer has an id").to_owned();
    let body = json!({"subnet": {"network_id": id, "cidr": cidr, "ip_version": 4}});
    running.neutron("admin", "POST /subnets", Some(body)).await.expect(201);
    id
}

#[tokio::test]
async fn a_rule_lets_servers_onto_external_networks() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let net = external(&running, "outside", false, "192.0.2.0/24").await;
        let boot_request = request_on_networks(&cloud, &running, "plain", json!([{"uuid": net}]));
        let words = "It is not allowed to create an interface on external network";
        let boot = "POST /servers";
        running.call(ANN, "2.90", boot, Some(boot_request.clone())).await.refused(403, words);
        let id = running.active_server(&cloud, "two", "plain").await;
        let attach = format!("POST /servers/{id}/os-interface");
        let line = json!({"interfaceAttachment": {"net_id": net}});
        running.call(ANN, "2.90", &attach, Some(line.clone())).await.refused(403, words);

        let members = with_policy(&running, "network:attach_external_network: role:member\n");
        members.call(ANN, "2.90", boot, Some(boot_request.clone())).await.expect(202);
        members.call(ANN, "2.90", &attach, Some(line)).await.expect(200);
        let nobody = with_policy(&running, "network:attach_external_network: \"!\"\n");
        nobody.call("admin", "2.90", boot, Some(boot_request)).await.refused(403, words);

        let shared = external(&running, "shared", true, "198.51.100.0/24").await;
        let boot_request =
            request_on_networks(&cloud, &running, "plain", json!([{"uuid": shared}]));
        nobody.call(ANN, "2.90", boot, Some(boot_request)).await.expect(202);
    }
}

#[tokio::test]
async fn a_rule_lets_members_boot_flavors_without_a_disk() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        running.flavor("none", json!({"disk": 0})).await;
        let boot_request = running.boot_request(&cloud, "one", "none");
        let words = "Only volume-backed servers are allowed for flavors with zero disk.";
        running
            .call(ANN, "2.90", "POST /servers", Some(boot_request.clone()))
            .await
            .refused(403, words);
        let rule = "os_compute_api:servers:create:zero_disk_flavor";
        let members = with_policy(&running, &format!("{rule}: role:member\n"));
        members.call(ANN, "2.90", "POST /servers", Some(boot_request.clone())).await.expect(202);
        let nobody = with_policy(&running, &format!("{rule}: \"!\"\n"));
        nobody.call("admin", "2.90", "POST /servers", Some(boot_request)).await.refused(403, words);
    }
}

#[tokio::test]
async fn a_rule_decides_over_the_certificates_of_a_rebuild() {
    const RULE: &str = "os_compute_api:servers:rebuild:trusted_certs";
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let rebuild = json!({"rebuild": {
            "imageRef": cloud.image, "trusted_image_certificates": ["a"]}});
        running.try_act(&id, rebuild.clone()).await.refused(400, "Signatures of images");
        let nobody = with_policy(&running, &format!("{RULE}: \"!\"\n"));
        let path = format!("POST /servers/{id}/action");
        nobody.call(ANN, "2.90", &path, Some(rebuild)).await.refused(403, RULE);
        let rebuild = json!({"rebuild": {"imageRef": cloud.image}});
        nobody.call(ANN, "2.90", &path, Some(rebuild)).await.expect(202);
    }
}

#[tokio::test]
async fn a_rule_shows_users_that_the_state_of_a_host_is_unknown() {
    const RULE: &str = "os_compute_api:servers:show:host_status:unknown-only";
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let path = format!("/servers/{id}");
        let users = with_policy(&running, &format!("{RULE}: role:reader\n"));
        let seen = async |client: &Client, who: &str| {
            let shown = client.get(who, "2.90", &path).await.expect(200);
            shown["server"]["host_status"].as_str().map(str::to_owned)
        };
        assert_eq!(seen(&users, ANN).await, None, "the state is known");
        assert_eq!(seen(&users, "admin").await.as_deref(), Some("UP"));
        let services =
            running.get("admin", "2.53", "/os-services?binary=nova-compute").await.expect(200);
        let service =
            services["services"][0]["id"].as_str().expect("the answer has an id").to_owned();
        let update = format!("PUT /os-services/{service}");
        for (body, state) in [
            (json!({"status": "disabled"}), "MAINTENANCE"),
            (json!({"status": "enabled", "forced_down": true}), "DOWN"),
            (json!({"forced_down": false}), "UP"),
        ] {
            running.admin("2.53", &update, body).await.expect(200);
            assert_eq!(seen(&users, "admin").await.as_deref(), Some(state));
            assert_eq!(seen(&users, ANN).await, None, "{state} is known");
        }
        running.nodes.kill_all().await;
        cloud.execute("UPDATE hosts SET last_seen = last_seen - 61000000").await;
        running.replace_services(&cloud, CrashPlan::default()).await;
        let users = with_policy(&running, &format!("{RULE}: role:reader\n"));
        assert_eq!(seen(&users, "admin").await.as_deref(), Some("UNKNOWN"));
        assert_eq!(seen(&users, ANN).await.as_deref(), Some("UNKNOWN"));
        assert_eq!(
            seen(&running, ANN).await,
            None,
            "upstream's default shows it to administrators"
        );
    }
}

#[tokio::test]
async fn a_topology_says_nothing_of_the_host_to_anybody() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let nobody = with_policy(&running, "compute:server:topology:host:index: \"!\"\n");
        for who in [ANN, "admin"] {
            let shown = nobody.get(who, "2.90", &format!("/servers/{id}/topology")).await;
            assert_eq!(shown.expect(200), json!({"nodes": [], "pagesize_kb": null}), "{who}");
        }
    }
}

#[tokio::test]
async fn an_image_that_its_service_does_not_show_is_not_booted() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        let rules = enforcer(kilonova_image::RULES, Dialect::Image, "get_image: role:librarian\n");
        let images = running
            .compute
            .images
            .own()
            .cloned()
            .expect("the image service is configured")
            .with_policy(rules);
        let hidden = client(running.compute.clone().with_images(images));
        let boot_request = running.boot_request(&cloud, "two", "plain");
        let refused = hidden.call(ANN, "2.90", "POST /servers", Some(boot_request)).await;
        refused.refused(400, "could not be found");
        let path = format!("POST /servers/{id}/action");
        for (action, words) in [
            (json!({"rebuild": {"imageRef": cloud.image}}), "could not be found"),
            (json!({"rescue": {"rescue_image_ref": cloud.image}}), "is not supported"),
        ] {
            hidden.call(ANN, "2.90", &path, Some(action)).await.refused(400, words);
        }
    }
}
