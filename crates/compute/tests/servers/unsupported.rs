//! TPMs, quotas and other unsupported specs are refused at the flavor, the image and the boot, so that no guest
//! runs without them.

use kilonova_store::params;
use serde_json::{Value, json};

use crate::kit::{ADMIN, ANN, Cloud, RunningCloud, hosts};

/// A flavor from before the check: the extra specs are written to the database directly.
async fn old_flavor(cloud: &Cloud, running: &RunningCloud, name: &str, specs: Value) {
    let flavor = json!({"flavor": {"id": name, "name": name, "ram": 512, "vcpus": 4, "disk": 1}});
    running.call(ADMIN, "2.90", "POST /flavors", Some(flavor)).await.expect(200);
    let (name, specs) = (name.to_owned(), specs.to_string());
    let sql = "UPDATE flavors SET extra_specs = ?2 WHERE id = ?1";
    cloud
        .store
        .write(move |tx| tx.execute(sql, params![&name, &specs]))
        .await
        .expect("the row is written");
}

#[tokio::test]
async fn an_unsupported_flavor_is_refused_at_creation_and_boot() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[]), ("b", &[])])).await {
        let set = "POST /flavors/plain/os-extra_specs";
        for version in ["2.1", "2.86", "2.104"] {
            let pinned = json!({"extra_specs": {"x": "y", "hw:pmu": "true"}});
            running.admin(version, set, pinned).await.refused(
                400,
                "Extra spec hw:pmu=true cannot be set: a guest's performance monitoring unit cannot be switched.",
            );
        }
        let shown = running.get(ADMIN, "2.61", "/flavors/plain/os-extra_specs").await.expect(200);
        assert_eq!(shown["extra_specs"], json!({}), "no extra spec is stored");

        old_flavor(&cloud, &running, "pinned", json!({"hw:pmu": "true"})).await;
        old_flavor(&cloud, &running, "odd", json!({"hw:numa_nodes": "3"})).await;
        let id = running.active_server(&cloud, "one", "plain").await;
        for (flavor, words) in [
            ("pinned", "Flavor pinned asks for hw:pmu=true, and a guest's performance monitoring"),
            (
                "odd",
                "Instance CPUs and/or memory cannot be evenly distributed across instance NUMA",
            ),
        ] {
            let boot_request = running.boot_request(&cloud, "two", flavor);
            running.call(ANN, "2.1", "POST /servers", Some(boot_request)).await.refused(400, words);
            let resize = json!({"resize": {"flavorRef": flavor}});
            running.try_act(&id, resize).await.refused(400, words);
        }
        assert_eq!(running.servers().await.len(), 1);

        let sql = "UPDATE flavors SET extra_specs = '{}' WHERE id = 'pinned'";
        cloud.store.write(move |tx| tx.execute(sql, params![])).await.expect("the row is written");
        let old = running.active_server(&cloud, "old", "pinned").await;
        old_spec(&cloud, &old).await;
        let rebuild = json!({"rebuild": {"imageRef": cloud.image}});
        running.act(&old, rebuild).await;
        running.wait_for_status(&old, "ACTIVE").await;
    }
}

/// Changes a server as if it had been created before the check.
async fn old_spec(cloud: &Cloud, id: &str) {
    let id: kilonova_ids::ServerId = id.parse().expect("the id is a UUID");
    let read = "SELECT spec FROM servers WHERE id = ?1";
    let row =
        cloud.store.read(move |tx| tx.row(read, params![id])).await.expect("the query succeeds");
    let mut spec: Value = serde_json::from_str(
        row.expect("the server exists").text(0).expect("the value is a string"),
    )
    .expect("the text is JSON");
    spec["flavor"]["extra_specs"] = json!({"hw:cpu_policy": "dedicated"});
    let (write, spec) = ("UPDATE servers SET spec = ?2 WHERE id = ?1", spec.to_string());
    cloud
        .store
        .write(move |tx| tx.execute(write, params![id, &spec]))
        .await
        .expect("the row is written");
}

#[tokio::test]
async fn an_unsupported_image_is_refused_at_boot_rebuild_and_rescue() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let id = running.active_server(&cloud, "one", "plain").await;
        for (property, value, words) in [
            ("hw_tpm_model", "tpm-crb", "asks for hw_tpm_model=tpm-crb, and guests have no TPM."),
            ("hw_serial_port_count", "2", "asks for hw_serial_port_count=2, and guests have one"),
        ] {
            let image = cloud.image_with("odd", &[(property, value)], b"disk".to_vec()).await;
            let mut boot_request = running.boot_request(&cloud, "two", "plain");
            boot_request["server"]["imageRef"] = json!(image);
            running
                .call(ANN, "2.90", "POST /servers", Some(boot_request))
                .await
                .refused(400, words);
            let rebuild = json!({"rebuild": {"imageRef": image}});
            running.try_act(&id, rebuild).await.refused(400, words);
            let rescue = json!({"rescue": {"rescue_image_ref": image}});
            running.try_act(&id, rescue).await.refused(400, words);
        }
        assert_eq!(running.servers().await.len(), 1);
        running.wait_for_status(&id, "ACTIVE").await;
    }
}

#[tokio::test]
async fn a_trait_that_the_image_requires_restricts_the_hosts() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let required = [("trait:CUSTOM_QUIET", "required")];
        let image = cloud.image_with("quiet", &required, b"disk".to_vec()).await;
        let id = running.boot_with(&cloud, "one", "plain", json!({"imageRef": image})).await;
        let fault = running.wait_for_status(&id, "ERROR").await["fault"].clone();
        assert!(fault["message"].as_str().is_some_and(|m| m.contains("CUSTOM_QUIET")), "{fault}");
    }
}

/// Upstream: `_validate_image_traits_for_rebuild` in `nova/conductor/manager.py`.
#[tokio::test]
async fn a_rebuild_needs_the_traits_of_its_image() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[])])).await {
        let image = async |name: &str| {
            let required = [(&*format!("trait:{name}"), "required")];
            cloud.image_with(name, &required, b"disk".to_vec()).await
        };
        let (quiet, node) = (image("CUSTOM_QUIET").await, image("COMPUTE_NODE").await);
        running.flavor("loud", json!({})).await;
        let specs = json!({"extra_specs": {"trait:CUSTOM_QUIET": "forbidden"}});
        running.admin("2.61", "POST /flavors/loud/os-extra_specs", specs).await.expect(200);
        for (flavor, words) in [
            ("plain", "Image traits cannot be satisfied by the current resource providers."),
            ("loud", "Image traits are part of forbidden traits in flavor"),
        ] {
            let id = running.active_server(&cloud, flavor, flavor).await;
            let rebuild = json!({"rebuild": {"imageRef": quiet}});
            let words = format!("No valid host was found. {words}");
            running.try_act(&id, rebuild).await.refused(400, &words);
            let server = running.wait_for_status(&id, "ACTIVE").await;
            assert_eq!(server["image"]["id"], json!(cloud.image), "nothing has changed");
            running.act(&id, json!({"rebuild": {"imageRef": node}})).await;
            let server = running.wait_for_status(&id, "ACTIVE").await;
            assert_eq!(server["image"]["id"], json!(node));
        }
        cloud.teardown(&running, "rebuilt").await;
    }
}
