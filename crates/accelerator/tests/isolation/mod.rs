//! Access to every operation, as every kind of caller, in the caller's own project and in another
//! one.
//!
//! The operations are read from the sources of the routes, so that a new operation without a row in
//! [`table`] fails here, and so does a row without an operation.

mod sources;
mod table;

use std::collections::BTreeSet;

use http::{Method, StatusCode};
use kilonova_ids::{ProviderId, ServerId};
use kilonova_store::Store;
use serde_json::{Value, json};
use table::{Body, Reach, Row, TABLE};

use crate::common::arqs::{PATH, bind, request};
use crate::common::{Api, audit, fake, report, stores};

/// Roles, and whether a service token is sent.
const CALLERS: [(&str, bool); 8] = [
    ("", false),
    ("reader", false),
    ("member", false),
    ("manager", false),
    ("admin", false),
    ("service", false),
    ("member", true),
    ("service", true),
];
const OWN: &str = "p1";
const FOREIGN: &str = "p2";

/// The objects of one call, all of them in project `p1`.
struct Objects {
    device: String,
    deployable: String,
    deployable_number: i64,
    attribute: String,
    profile: String,
    arq: String,
    bound: String,
    server: String,
    provider: ProviderId,
}

async fn uuid_of(api: &Api, path: &str, list: &str) -> String {
    api.get(path).await.body[list][0]["uuid"].as_str().unwrap().to_owned()
}

impl Objects {
    async fn make(store: &Store, provider: ProviderId) -> Self {
        let admin = Api::admin(store).with_service();
        let server = ServerId::new_v4().to_string();
        let pair = request(&admin, "FPGA", "2").await;
        let steps = bind(&pair[..1], provider, &server);
        assert_eq!(admin.patch(PATH, steps).await.status, StatusCode::ACCEPTED);
        let number =
            admin.get("/v2/attributes").await.body["attributes"][0]["deployable_id"].clone();
        let attribute = json!({"deployable_id": number, "key": "k", "value": "v"});
        let made = admin.post("/v2/attributes", attribute).await;
        let name = format!("own-{}", &server[..8]);
        let groups = json!([{"resources:FPGA": "1"}]);
        let profile =
            admin.post("/v2/device_profiles", json!([{"name": name, "groups": groups}])).await;
        Self {
            device: uuid_of(&admin, "/v2/devices", "devices").await,
            deployable: uuid_of(&admin, "/v2/deployables", "deployables").await,
            deployable_number: number.as_i64().unwrap(),
            attribute: made.body["uuid"].as_str().unwrap().to_owned(),
            profile: profile.body["uuid"].as_str().unwrap().to_owned(),
            arq: pair[1].clone(),
            bound: pair[0].clone(),
            server,
            provider,
        }
    }

    /// Frees the devices for the next call.
    async fn clear(&self, store: &Store) {
        let nova = Api::admin(store).with_service();
        for path in [
            format!("{PATH}?instance={}", self.server),
            format!("{PATH}/{}", self.arq),
            format!("/v2/device_profiles/{}", self.profile),
            format!("/v2/attributes/{}", self.attribute),
        ] {
            nova.delete(&path).await;
        }
    }

    fn path(&self, row: &Row) -> String {
        let path = row.path.replace("{device}", &self.device);
        let path = path.replace("{deployable}", &self.deployable);
        let path = path.replace("{attribute}", &self.attribute).replace("{profile}", &self.profile);
        path.replace("{arq}", &self.arq)
            .replace("{bound}", &self.bound)
            .replace("{server}", &self.server)
    }

    fn body(&self, row: &Row) -> Vec<u8> {
        let new = ServerId::new_v4().to_string();
        let body = match row.body {
            Body::None => return Vec::new(),
            Body::Profile => {
                json!([{"name": format!("n-{}", &new[..8]), "groups": [{"resources:FPGA": "1"}]}])
            }
            Body::Attribute => {
                json!({"deployable_id": self.deployable_number, "key": "new", "value": "v"})
            }
            Body::Program => {
                json!([{"path": "/program", "op": "replace", "value": [{"image_uuid": new}]}])
            }
            Body::Request => json!({"device_profile_name": "dp-FPGA-2"}),
            Body::Bind => bind(std::slice::from_ref(&self.arq), self.provider, &new),
            Body::Unbind => json!({&self.bound: [{"path": "/hostname", "op": "remove"}]}),
        };
        body.to_string().into_bytes()
    }
}

fn expected(row: &Row, role: &str, token: bool, own: bool) -> u16 {
    let denied = !row.roles.is_empty() && !row.roles.contains(&role);
    if denied || (row.token && !token) {
        return 403;
    }
    match row.reach {
        Reach::Owners if !own && !token && role != "admin" => 404,
        _ => row.status,
    }
}

/// True if a list shows a request of project `p1`.
fn shows(body: &Value, arq: &str) -> bool {
    body["arqs"].as_array().is_some_and(|list| list.iter().any(|row| row["uuid"] == arq))
}

/// Makes one call and checks its effects. Returns whether anything changed.
async fn call(
    store: &Store,
    objects: &Objects,
    row: &Row,
    caller: (&'static str, bool),
    own: bool,
) -> bool {
    let (role, token) = caller;
    let project = if own { OWN } else { FOREIGN };
    let api = Api { service: token, ..Api::admin(store).with_roles(role).of_project(project) };
    let method = Method::from_bytes(row.method.as_bytes()).unwrap();
    let answer = api.raw(method, &objects.path(row), objects.body(row)).await;
    let system = store.system();
    let what =
        format!("{system:?}: {} {} as {role:?}, token {token}, own {own}", row.method, row.path);
    let wanted = expected(row, role, token, own);
    assert_eq!(answer.status.as_u16(), wanted, "{what}: {}", answer.body);
    if row.reach == Reach::Listed && answer.status == StatusCode::OK {
        let may = own || token || role == "admin";
        assert_eq!(shows(&answer.body, &objects.arq), may, "{what}");
    }
    let changed = answer.status.is_success() && row.method != "GET";
    if !changed {
        let still = Api::admin(store).get(&format!("{PATH}/{}", objects.arq)).await;
        assert_eq!(still.body["state"], "Initial", "{what}: nothing happened");
        let still = Api::admin(store).get(&format!("{PATH}/{}", objects.bound)).await;
        assert_eq!(still.body["state"], "Bound", "{what}: nothing happened");
    }
    changed
}

#[tokio::test]
async fn each_caller_reaches_only_its_own_resources() {
    for (name, store, _guard) in stores().await {
        let provider = report(&store, vec![fake(4)]).await.unwrap()[0].id;
        let mut objects = Objects::make(&store, provider).await;
        for row in TABLE {
            for caller in CALLERS {
                for own in [true, false] {
                    if call(&store, &objects, row, caller, own).await {
                        objects.clear(&store).await;
                        objects = Objects::make(&store, provider).await;
                    }
                }
            }
        }
        assert_eq!(audit(&store).await, Vec::<String>::new(), "{name}");
    }
}

#[test]
fn the_table_lists_every_operation_and_no_other() {
    let operations = sources::operations();
    assert!(operations.len() >= 24, "{operations:?}");
    let rows: BTreeSet<(String, String)> =
        TABLE.iter().map(|row| (row.method.to_owned(), row.route.to_owned())).collect();
    assert_eq!(rows, operations);
}
