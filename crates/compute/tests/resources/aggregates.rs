//! Host aggregates and zones.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::resources::kit::{ADMIN, ANN, Api, apis};

const MV: &str = "2.81";
const NOW: Timestamp = Timestamp::constant(4_000_000_000, 0);

async fn add(api: &Api, name: &str, zone: Value) -> i64 {
    let body = json!({"aggregate": {"name": name, "availability_zone": zone}});
    let made = api.admin(MV, "POST /os-aggregates", body).await.expect(200);
    made["aggregate"]["id"].as_i64().expect("the answer has an id")
}

async fn act(api: &Api, id: i64, action: Value) -> crate::resources::kit::Answer {
    api.admin("2.1", &format!("POST /os-aggregates/{id}/action"), action).await
}

async fn zones(api: &Api) -> Vec<String> {
    let list = api.get(ADMIN, "2.1", "/os-availability-zone").await.expect(200);
    let names = list["availabilityZoneInfo"].as_array().expect("the answer has a list").iter();
    names.map(|zone| zone["zoneName"].as_str().expect("the value has a name").to_owned()).collect()
}

#[tokio::test]
async fn aggregate_lifecycle() {
    for api in apis().await {
        api.host("h1", NOW).await;
        let body = json!({"aggregate": {"name": "fast", "availability_zone": "east"}});
        let made = api.admin(MV, "POST /os-aggregates", body).await.expect(200);
        let made = &made["aggregate"];
        assert_eq!((&made["name"], &made["availability_zone"]), (&json!("fast"), &json!("east")));
        assert!(made.get("hosts").is_none() && made.get("metadata").is_none(), "{made}");
        assert!(made["uuid"].is_string() && made["updated_at"].is_null());
        let id = made["id"].as_i64().expect("the answer has an id");
        let path = format!("/os-aggregates/{id}");

        act(&api, id, json!({"set_metadata": {"metadata": {"ssd": "yes", "old": "1"}}}))
            .await
            .expect(200);
        act(&api, id, json!({"set_metadata": {"metadata": {"old": null}}})).await.expect(200);
        act(&api, id, json!({"add_host": {"host": "h1"}})).await.expect(200);
        let shown = api.get(ADMIN, MV, &path).await.expect(200)["aggregate"].take();
        assert_eq!(shown["hosts"], json!(["h1"]));
        assert_eq!(shown["metadata"], json!({"availability_zone": "east", "ssd": "yes"}));
        assert!(zones(&api).await.contains(&"east".to_owned()));
        let old = api.get(ADMIN, "2.40", &path).await.expect(200);
        assert!(old["aggregate"].get("uuid").is_none());

        let body = json!({"aggregate": {"name": " faster  ", "availability_zone": "west"}});
        let changed = api.admin(MV, &format!("PUT {path}"), body).await.expect(200);
        assert_eq!(changed["aggregate"]["name"], "faster", "without the spaces around it");
        assert_eq!(changed["aggregate"]["availability_zone"], "west");
        assert!(zones(&api).await.contains(&"west".to_owned()));
        api.call(ADMIN, MV, &format!("DELETE {path}"), None).await.refused(
            400,
            &format!("Cannot delete aggregate {id}. Reason: Host aggregate is not empty."),
        );
        act(&api, id, json!({"remove_host": {"host": "h1"}})).await.expect(200);
        assert!(!zones(&api).await.contains(&"west".to_owned()));
        api.call(ADMIN, "2.102", &format!("DELETE {path}?x=1"), None).await.expect(200);
        api.get(ADMIN, MV, &path)
            .await
            .refused(404, &format!("Aggregate {id} could not be found."));
        let list = api.get(ADMIN, MV, "/os-aggregates").await.expect(200);
        assert_eq!(list, json!({"aggregates": []}));
    }
}

#[tokio::test]
async fn a_host_is_in_one_zone_and_once_in_an_aggregate() {
    for api in apis().await {
        api.host("h1", NOW).await;
        let (east, west) =
            (add(&api, "e", json!("east")).await, add(&api, "w", json!("west")).await);
        let plain = add(&api, "p", Value::Null).await;
        let h1 = || json!({"add_host": {"host": "h1"}});
        act(&api, east, h1()).await.expect(200);
        act(&api, plain, h1()).await.expect(200);
        act(&api, east, h1()).await.refused(409, &format!("Aggregate {east} already has host h1."));
        let reason = "Reason: One or more hosts already in availability zone(s) ['east'].";
        act(&api, west, h1())
            .await
            .refused(409, &format!("Cannot add host to aggregate {west}. {reason}"));
        act(&api, plain, json!({"set_metadata": {"metadata": {"availability_zone": "west"}}}))
            .await
            .refused(400, &format!("Cannot update metadata of aggregate {plain}. {reason}"));
        act(&api, west, json!({"remove_host": {"host": "h1"}}))
            .await
            .refused(404, &format!("Aggregate {west} has no host h1."));
        act(&api, east, json!({"add_host": {"host": "h9"}}))
            .await
            .refused(404, "Compute host h9 could not be found.");
    }
}

#[tokio::test]
async fn invalid_requests_are_refused() {
    for api in apis().await {
        let id = add(&api, "a", Value::Null).await;
        let post = async |body: Value| api.admin(MV, "POST /os-aggregates", body).await;
        post(json!({"aggregate": {"name": "a"}})).await.refused(409, "Aggregate a already exists.");
        post(json!({"aggregate": {}})).await.refused(400, "name");
        post(json!({"aggregate": {"name": ""}})).await.refused(400, "name");
        post(json!({"aggregate": {"name": "b", "hosts": []}})).await.refused(400, "hosts");
        post(json!({"aggregate": {"name": "b\u{7}"}})).await.refused(400, "name");
        let colon = "availability_zone. Value: a:b. It can not contain ':'.";
        let zoned = |zone: &str| json!({"aggregate": {"name": "z", "availability_zone": zone}});
        post(zoned("a:b")).await.refused(400, colon);
        let put = format!("PUT /os-aggregates/{id}");
        api.admin(MV, &put, zoned("a:b")).await.refused(400, colon);
        let metadata = json!({"set_metadata": {"metadata": {"availability_zone": "a:b"}}});
        let set = act(&api, id, metadata).await.expect(200);
        assert_eq!(set["aggregate"]["availability_zone"], "a:b", "as in Nova, not checked here");
        api.get(ADMIN, MV, "/os-aggregates/fast").await.refused(400, "id must be an integer");
        api.get(ADMIN, MV, "/os-aggregates/99").await.refused(404, "Aggregate 99");
        act(&api, id, json!({"fly": {}})).await.refused(400, "There is no such action: fly");
        act(&api, id, json!({"add_host": {"host": "a/b"}})).await.refused(400, "host");
        act(&api, id, json!({"set_metadata": {"metadata": {"availability_zone": ""}}}))
            .await
            .refused(400, "does not support empty named availability zone");
        api.admin(MV, &put, json!({"aggregate": {}})).await.refused(400, "aggregate");
        api.admin(MV, &put, json!({"aggregate": {"name": "  "}})).await.refused(400, "name");
        post(json!({"aggregate": {"name": " b"}})).await.refused(400, "name");
        api.get(ANN, MV, "/os-aggregates").await.refused(403, "os_compute_api:os-aggregates:index");
        api.call(
            ANN,
            MV,
            &format!("POST /os-aggregates/{id}/action"),
            Some(json!({"add_host": {"host": "h"}})),
        )
        .await
        .refused(403, "os_compute_api:os-aggregates:add_host");
        api.get(ADMIN, "2.102", "/os-aggregates?x=1").await.refused(400, "x");
    }
}
