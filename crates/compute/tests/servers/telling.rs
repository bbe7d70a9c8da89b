//! Who reads what of a failure: anybody the message, administrators the host and its own words.

use serde_json::{Value, json};

use crate::kit::{ADMIN, ANN, Cloud, GPU, Up, hosts};

async fn fault(up: &Up, token: &str, id: &str) -> Value {
    let shown = up.get(token, "2.96", &format!("/servers/{id}")).await.expect(200);
    let listed = up.get(token, "2.96", "/servers/detail").await.expect(200);
    if token == ANN {
        let all = listed["servers"].as_array().expect("a list");
        let of = all.iter().find(|server| server["id"] == id).expect("listed");
        assert_eq!(of["fault"], shown["server"]["fault"]);
    }
    shown["server"]["fault"].clone()
}

/// The newest action with its events.
async fn action(up: &Up, token: &str, id: &str) -> Value {
    let path = format!("/servers/{id}/os-instance-actions");
    let list = up.get(token, "2.96", &path).await.expect(200);
    let request = list["instanceActions"][0]["request_id"].as_str().expect("an id").to_owned();
    let shown = up.get(token, "2.96", &format!("{path}/{request}")).await.expect(200);
    shown["instanceAction"].clone()
}

#[tokio::test]
async fn a_host_and_its_words_are_for_administrators() {
    for (cloud, mut up) in Cloud::all_up(hosts(&[("secret-1", &[GPU])])).await {
        let id = up.active(&cloud, "one", "vgpu").await;
        up.restart_failing(&cloud, "secret-1", &[("stop", Some(1))]).await;
        up.act(&id, json!({"os-stop": null})).await;
        up.becomes(&id, "ERROR").await;

        let told = fault(&up, ANN, &id).await;
        assert_eq!(told["message"], "The host could not shut the guest off.");
        assert_eq!(told.get("details"), None, "{told}");
        let all = fault(&up, ADMIN, &id).await;
        assert_eq!(all["message"], told["message"]);
        assert!(
            all["details"].as_str().is_some_and(|d| d.starts_with("secret-1: stop: ")),
            "{all}"
        );

        let told = action(&up, ANN, &id).await;
        let event = &told["events"][0];
        assert_eq!((&told["message"], &event["result"]), (&json!("Error"), &json!("Error")));
        assert_eq!((event.get("details"), event.get("host")), (None, None), "{event}");
        assert_eq!(event["hostId"].as_str().map(str::len), Some(56), "{event}");
        assert!(!told.to_string().contains("secret"), "{told}");
        let all = action(&up, ADMIN, &id).await;
        let event = &all["events"][0];
        assert_eq!(event["host"], "secret-1");
        assert!(
            event["details"].as_str().is_some_and(|d| d.starts_with("secret-1: stop")),
            "{all}"
        );
    }
}

#[tokio::test]
async fn a_boot_that_fails_on_its_hosts_names_none_to_the_tenant() {
    for (cloud, mut up) in Cloud::all_up(hosts(&[("secret-1", &[GPU])])).await {
        up.restart_failing(&cloud, "secret-1", &[("start", None)]).await;
        let id = up.boot(&cloud, "one", "vgpu").await;
        up.becomes(&id, "ERROR").await;
        let told = fault(&up, ANN, &id).await;
        let message = told["message"].as_str().expect("a text");
        let prefix = "No valid host was found. There are not enough hosts available. ";
        assert!(message.starts_with(prefix), "{told}");
        assert!(message.len() <= 255 && !told.to_string().contains("secret"), "{told}");
        let all = fault(&up, ADMIN, &id).await;
        assert!(all["details"].as_str().is_some_and(|d| d.contains("secret-1: start")), "{all}");
        let shown = up.get(ANN, "2.96", &format!("/servers/{id}/os-instance-actions")).await;
        assert!(!shown.expect(200).to_string().contains("secret"));
    }
}

#[tokio::test]
async fn a_fault_from_before_the_details_says_nothing_to_the_tenant() {
    for (cloud, up) in Cloud::all_up(hosts(&[("secret-1", &[])])).await {
        let id = up.boot(&cloud, "one", "vgpu").await;
        up.becomes(&id, "ERROR").await;
        let sql = "UPDATE servers SET fault = \
            '{\"code\": 500, \"message\": \"secret-1: x\", \"created\": 0, \"details\": null}'";
        cloud.store.write(move |tx| tx.execute(sql, kilonova_store::params![])).await.expect("ok");
        let told = fault(&up, ANN, &id).await;
        assert_eq!(told["message"], "The server failed. An administrator can see why.");
        assert_eq!(fault(&up, ADMIN, &id).await["message"], "secret-1: x");
    }
}
