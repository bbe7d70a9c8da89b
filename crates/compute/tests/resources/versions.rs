//! Version documents, microversion negotiation, and the headers of every answer.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::http::Request;
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::resources::kit::{ADMIN, ANN, apis};

#[tokio::test]
async fn version_documents_need_no_token() {
    for api in apis().await {
        let request = |path: &str| {
            Request::get(path)
                .header("host", "cloud:1234")
                .body(Body::empty())
                .expect("the request is valid")
        };
        let root = api.send(request("/")).await.expect(200);
        let both = [&root["versions"][0]["id"], &root["versions"][1]["id"]];
        assert_eq!(both, ["v2.0", "v2.1"]);
        let old = &root["versions"][0];
        assert_eq!((&old["version"], &old["status"]), (&json!(""), &json!("DEPRECATED")));
        assert_eq!(old["links"][0]["href"], "http://cloud:1234/compute/v2/");
        assert_eq!(old["links"].as_array().map(Vec::len), Some(1));
        let described = json!({
            "rel": "describedby", "type": "text/html", "href": "http://docs.openstack.org/",
        });
        for path in ["/v2", "/v2/"] {
            let version = &api.send(request(path)).await.expect(200)["version"];
            assert_eq!(version["id"], "v2.0");
            assert_eq!(version["links"][1], described);
        }
        for path in ["/v2.1", "/v2.1/"] {
            let version = &api.send(request(path)).await.expect(200)["version"];
            assert_eq!(version["status"], "CURRENT");
            assert_eq!(
                (&version["version"], &version["min_version"]),
                (&json!("2.104"), &json!("2.1"))
            );
            assert_eq!(version["links"][0]["href"], "http://cloud:1234/compute/v2.1/");
            assert_eq!(version["links"][1], described);
        }
        let answer = api.send(request("/v2.1/flavors")).await;
        assert_eq!(answer.status.as_u16(), 401);
        assert_eq!(answer.body["unauthorized"]["code"], 401);
    }
}

#[tokio::test]
async fn the_v2_path_answers_as_microversion_2_1() {
    for api in apis().await {
        let request = |token: Option<&str>, version: &str| {
            let request = Request::get("/v2/flavors/x?a=b").header("host", "cloud:1234");
            let request = request.header("openstack-api-version", format!("compute {version}"));
            let request = match token {
                Some(token) => request.header("x-auth-token", token),
                None => request,
            };
            request.body(Body::empty()).expect("the request is valid")
        };
        api.flavor("x", json!({})).await;
        let shown = api.send(request(Some(ANN), "2.61")).await.expect(200);
        assert_eq!(shown["flavor"]["id"], "x");
        assert_eq!(shown["flavor"].get("extra_specs"), None, "{shown}");
        assert_eq!(api.send(request(None, "2.1")).await.status.as_u16(), 401);
    }
}

#[tokio::test]
async fn answers_name_their_microversion_and_refusals_their_reason() {
    for api in apis().await {
        let answer = api.get(ANN, "2.61", "/flavors").await;
        assert_eq!(answer.headers["openstack-api-version"], "compute 2.61");
        assert_eq!(answer.headers["x-openstack-nova-api-version"], "2.61");
        assert!(answer.headers["vary"].to_str().is_ok_and(|vary| vary.contains("Nova-API")));
        assert!(answer.headers.contains_key("x-compute-request-id"));
        api.get(ANN, "2.999", "/flavors").await.refused(
            406,
            "Version 2.999 is not supported by the API. Minimum is 2.1 and maximum is 2.104.",
        );
        api.get(ANN, "two", "/flavors")
            .await
            .refused(400, "API Version String two is of invalid format");
        api.get(ANN, "2.1", "/nothing").await.refused(404, "could not be found");
        let answer = api.call(ADMIN, "2.1", "PATCH /flavors", None).await;
        assert_eq!(answer.body["badMethod"]["code"], 405);
    }
}

#[tokio::test]
async fn statements_are_understood_by_both_databases() {
    for api in apis().await {
        for list in kilonova_compute_db::statements() {
            assert_eq!(api.store.refused(list).await, Vec::<String>::new());
        }
        if api.store.system() == kilonova_store::System::Postgres {
            let own = kilonova_compute_db::fleet::POSTGRES_STATEMENTS;
            assert_eq!(api.store.refused(own).await, Vec::<String>::new());
        }
    }
}

#[tokio::test]
async fn extensions_are_listed_and_shown() {
    for api in apis().await {
        let list = api.get(ANN, "2.1", "/extensions").await.expect(200);
        let list = list["extensions"].as_array().expect("the answer has a list");
        let named = |alias: &str| list.iter().filter(|one| one["alias"] == alias).count();
        assert_eq!(
            [named("os-server-groups"), named("os-migrations"), named("os-cells")],
            [1, 1, 1]
        );
        assert_eq!(list.len(), 99, "as many as upstream has");
        let one = api.get(ANN, "2.1", "/extensions/os-keypairs").await.expect(200);
        assert_eq!(one["extension"]["name"], "Keypairs");
        api.get(ANN, "2.1", "/extensions/os-nothing").await.refused(404, "os-nothing");
    }
}

#[tokio::test]
async fn the_callers_project_may_follow_the_version() {
    for api in apis().await {
        let request = |method: &str, path: &str, token: &str| {
            let request = Request::builder().method(method).uri(path).header("host", "cloud:1234");
            let request = request.header("x-auth-token", token);
            request.body(Body::empty()).expect("the request is valid")
        };
        api.flavor("x", json!({})).await;
        api.flavor("y", json!({})).await;
        let path = "/v2.1/0a-1/flavors?limit=1&sort_key=flavorid";
        let listed = api.send(request("GET", path, "ann:0a-1")).await.expect(200);
        let root = "http://cloud:1234/compute";
        assert_eq!(
            listed["flavors"][0]["links"],
            json!([
                {"rel": "self", "href": format!("{root}/v2.1/0a-1/flavors/x")},
                {"rel": "bookmark", "href": format!("{root}/0a-1/flavors/x")},
            ])
        );
        let next = listed["flavors_links"][0]["href"].as_str().expect("there is a next page");
        assert!(next.starts_with(&format!("{root}/v2.1/0a-1/flavors?")), "{next}");
        let next = next.strip_prefix(root).expect("the link begins with the root");
        let listed = api.send(request("GET", next, "ann:0a-1")).await.expect(200);
        assert_eq!(listed["flavors"][0]["id"], "y");

        // Nova compares the project before it checks the policy, and after the token and the path.
        let refused = api.send(request("POST", "/v2.1/0a-1/flavors", "ann:0b")).await.expect(400);
        assert_eq!(
            refused["badRequest"]["message"],
            "Malformed request URL: URL's project_id '0a-1' doesn't match Context's project_id '0b'"
        );
        let unknown = api.send(request("GET", "/v2.1/0a-1/nothing", "ann:0b")).await;
        assert_eq!(unknown.status.as_u16(), 404);
        let unnamed = request("GET", "/v2.1/0a-1/flavors", "");
        let unnamed = api.send(strip_token(unnamed)).await;
        assert_eq!(unnamed.status.as_u16(), 401);
        let old = api.send(request("GET", "/v2/0a-1/flavors/x", "ann:0a-1")).await.expect(200);
        assert_eq!(old["flavor"]["id"], "x");
    }
}

fn strip_token(mut request: Request<Body>) -> Request<Body> {
    request.headers_mut().remove("x-auth-token");
    request
}

/// Collects the messages of the log.
#[derive(Clone, Default)]
struct Messages(Arc<Mutex<Vec<String>>>);

impl Visit for Messages {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0.lock().expect("no test panicked").push(format!("{value:?}"));
        }
    }
}

impl Subscriber for Messages {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn the_log_of_a_refused_body_has_no_secret() {
    for api in apis().await {
        let server = |field: &str, value| {
            let mut server = json!({"name": "a", "flavorRef": "1", "adminPass": "s3cret",
                "imageRef": "11111111-1111-4111-8111-111111111111"});
            server[field] = value;
            json!({"server": server})
        };
        let (create, act) = ("POST /servers", "POST /servers/x/action");
        let rescue = json!({"rescue": {"adminPass": "s3cret", "colour": "red"}});
        for (what, body, field) in [
            (create, server("colour", json!("red")), "('colour' was unexpected)"),
            (create, server("adminPass", json!(["s3cret"])), "field/attribute adminPass."),
            (create, server("user_data", json!({"x": "s3cret"})), "field/attribute user_data."),
            (create, server("metadata", json!({"k": ["s3cret"]})), "field/attribute metadata."),
            (act, rescue, "('colour' was unexpected)"),
            (
                act,
                json!({"confirmResize": {"adminPass": "s3cret"}}),
                "field/attribute confirmResize.",
            ),
        ] {
            let messages = Messages::default();
            let subscribed = tracing::subscriber::set_default(messages.clone());
            let answer = api.call(ANN, "2.1", what, Some(body)).await.expect(400);
            drop(subscribed);
            let told = answer["badRequest"]["message"].as_str().expect("there is a message");
            assert!(told.contains(field) && told.contains("s3cret"), "{told}");
            let logged = messages.0.lock().expect("no test panicked").clone();
            assert!(logged.iter().any(|message| message.contains(field)), "{logged:?}");
            assert!(!logged.iter().any(|message| message.contains("s3cret")), "{logged:?}");
        }
    }
}

/// Collects the paths that the spans of requests have in the log.
#[derive(Clone, Default)]
struct Paths(Arc<Mutex<Vec<String>>>);

impl Visit for Paths {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "path" {
            self.0.lock().expect("no test panicked").push(value.to_owned());
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}

impl Subscriber for Paths {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.name() == "request"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        span.record(&mut self.clone());
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut self.clone());
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn the_log_has_the_template_of_an_older_path() {
    for api in apis().await {
        for (path, logged) in [
            ("/v2", "/v2"),
            ("/v2/servers", "/v2/servers"),
            ("/v2/0a/servers/7b1e", "/v2/servers/7b1e"),
            ("/v2.1/os-volumes_boot", "/v2.1/os-volumes_boot"),
            ("/v2.1/os-volumes_boot/detail", "/v2.1/os-volumes_boot/detail"),
            ("/v2.1/os-volumes_boot/7b1e", "/v2.1/os-volumes_boot/7b1e"),
            ("/v2.1/os-volumes_boot/7b1e/action", "/v2.1/os-volumes_boot/7b1e/action"),
            ("/v2/os-volumes_boot", "/v2/os-volumes_boot"),
            ("/v2/os-volumes_boot/7b1e", "/v2/os-volumes_boot/7b1e"),
            ("/v2/os-console-auth-tokens/s3cret", "/v2/os-console-auth-tokens/{token}"),
            ("/v2.1/os-volumes_boot/7b1e/s3cret", "(no route)"),
            ("/v2/s3cret", "(no route)"),
            ("/v2.1/s3cret", "(no route)"),
        ] {
            let paths = Paths::default();
            let subscribed = tracing::subscriber::set_default(paths.clone());
            let request = Request::get(path).header("x-auth-token", "ann:0a");
            api.send(request.body(Body::empty()).expect("the request is valid")).await;
            drop(subscribed);
            assert_eq!(*paths.0.lock().expect("no test panicked"), [logged], "{path}");
        }
    }
}
