//! The built-in metadata definitions.

use axum::body::Body;
use serde_json::{Value, json};

use crate::shelf::{ADMIN, ANNA, Reply, Shelf, shelves};

const ALL: &str = "/v2/metadefs/namespaces";
const PINNING: &str = "/v2/metadefs/namespaces/OS::Compute::CPUPinning";

async fn names(shelf: &Shelf, query: &str) -> Vec<String> {
    let list = shelf.get(ANNA, &format!("{ALL}?limit=1000&{query}")).await;
    assert_eq!(list.status, 200, "{query}: {}", list.body);
    let list = list.body["namespaces"].as_array().unwrap().clone();
    list.iter().map(|one| one["namespace"].as_str().unwrap().to_owned()).collect()
}

async fn get(shelf: &Shelf, path: &str) -> Value {
    let reply = shelf.get(ANNA, path).await;
    assert_eq!(reply.status, 200, "{path}: {}", reply.body);
    reply.body
}

/// Horizon raises an exception for a form without namespaces.
#[tokio::test]
async fn each_form_of_horizon_has_a_namespace() {
    for shelf in shelves().await {
        for (kind, target) in [
            ("OS::Nova::Flavor", None),
            ("OS::Glance::Image", None),
            ("OS::Cinder::Volume", Some("image")),
            ("OS::Nova::Aggregate", None),
            ("OS::Nova::Server", Some("metadata")),
            ("OS::Nova::Server", Some("scheduler_hints")),
        ] {
            let sort = "sort_dir=asc&sort_key=namespace";
            let found = names(&shelf, &format!("resource_types={kind}&{sort}")).await;
            let mut sorted = found.clone();
            sorted.sort();
            assert_eq!(found, sorted);
            let mut shown = 0;
            for name in found {
                let one = get(&shelf, &format!("{ALL}/{name}?resource_type={kind}")).await;
                let of = one["resource_type_associations"].as_array().unwrap();
                let of = of.iter().find(|of| of["name"] == kind).unwrap();
                let prefix = of["prefix"].as_str().unwrap_or_default();
                let keys = one["properties"].as_object().unwrap().keys();
                assert!(keys.into_iter().all(|key| key.starts_with(prefix)), "{one}");
                shown += usize::from(of["properties_target"].as_str() == target);
            }
            assert!(shown > 0, "{kind} {target:?}");
        }
        assert_eq!(
            names(&shelf, "resource_types=OS::Cinder::Snapshot").await,
            Vec::<String>::new()
        );
    }
}

#[tokio::test]
async fn namespaces_are_listed_filtered_and_paged() {
    for shelf in shelves().await {
        let mut all = names(&shelf, "sort_key=namespace&sort_dir=asc").await;
        let reversed = names(&shelf, "sort_key=namespace").await;
        all.reverse();
        assert_eq!(all, reversed, "the default is descending");
        assert_eq!(names(&shelf, "visibility=public").await.len(), all.len());
        assert!(names(&shelf, "visibility=private").await.is_empty());
        let types = "resource_types=OS::Nova::Aggregate,OS::Nova::Server";
        assert_eq!(names(&shelf, types).await.len(), 5);

        let (mut path, mut paged) = (format!("{ALL}?limit=4&sort_key=namespace"), Vec::new());
        loop {
            let page = get(&shelf, &path).await;
            assert_eq!(page["first"], format!("{ALL}?limit=4&sort_key=namespace"));
            assert_eq!(page["schema"], "/v2/schemas/metadefs/namespaces");
            let found = page["namespaces"].as_array().unwrap();
            assert!((1..=4).contains(&found.len()));
            paged.extend(found.iter().map(|one| one["namespace"].as_str().unwrap().to_owned()));
            match page["next"].as_str() {
                Some(next) => path = next.to_owned(),
                None => break,
            }
        }
        assert_eq!(paged, all);
        for (query, status) in [
            ("sort_key=size", 400),
            ("sort_dir=up", 400),
            ("visibility=shared", 400),
            ("limit=x", 400),
            ("limit=-1", 400),
            ("marker=x", 404),
        ] {
            assert_eq!(shelf.get(ANNA, &format!("{ALL}?{query}")).await.status, status, "{query}");
        }
        let types = get(&shelf, "/v2/metadefs/resource_types").await;
        let types: Vec<&str> = types["resource_types"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["name"].as_str().unwrap())
            .collect();
        let expected = [
            "OS::Cinder::Volume",
            "OS::Glance::Image",
            "OS::Nova::Aggregate",
            "OS::Nova::Flavor",
            "OS::Nova::Server",
        ];
        assert_eq!(types, expected);
    }
}

#[tokio::test]
async fn a_namespace_is_shown_with_its_parts() {
    for shelf in shelves().await {
        let one = get(&shelf, PINNING).await;
        assert_eq!(one["self"], PINNING);
        assert_eq!(one["schema"], "/v2/schemas/metadefs/namespace");
        assert_eq!((&one["visibility"], &one["protected"]), (&json!("public"), &json!(true)));
        let policies = json!(["shared", "dedicated", "mixed"]);
        assert_eq!(one["properties"]["cpu_policy"]["enum"], policies);
        for (kind, key) in
            [("OS::Nova::Flavor", "hw:cpu_policy"), ("OS::Glance::Image", "hw_cpu_policy")]
        {
            let prefixed = get(&shelf, &format!("{PINNING}?resource_type={kind}")).await;
            assert_eq!(prefixed["properties"][key], one["properties"]["cpu_policy"]);
            let path = format!("{PINNING}/properties/{key}?resource_type={kind}");
            let property = get(&shelf, &path).await;
            assert_eq!((&property["name"], &property["enum"]), (&json!(key), &policies));
        }
        let properties = get(&shelf, &format!("{PINNING}/properties")).await;
        assert_eq!(properties, json!({"properties": one["properties"]}));
        let of = get(&shelf, &format!("{PINNING}/resource_types")).await;
        assert_eq!(of["resource_type_associations"], one["resource_type_associations"]);
        assert_eq!(of["resource_type_associations"][0]["prefix"], "hw:");
        assert_eq!(get(&shelf, &format!("{PINNING}/objects")).await["objects"], json!([]));
        assert_eq!(get(&shelf, &format!("{PINNING}/tags")).await, json!({"tags": []}));
        for (path, why) in [
            (format!("{ALL}/x"), "Metadata definition namespace=x was not found."),
            (format!("{ALL}/x/tags"), "Namespace x not found"),
            (
                format!("{PINNING}/properties/x"),
                "The metadata definition property with name=x was not found in \
                 namespace=OS::Compute::CPUPinning.",
            ),
            (
                format!("{PINNING}/properties/cpu_policy?resource_type=OS::Nova::Flavor"),
                "Property cpu_policy does not start with the expected resource type association \
                 prefix of 'hw:'.",
            ),
            (
                format!("{PINNING}/objects/x"),
                "The metadata definition object with name=x was not found in \
                 namespace=OS::Compute::CPUPinning.",
            ),
            (
                format!("{PINNING}/tags/x"),
                "The metadata definition tag with name=x was not found in \
                 namespace=OS::Compute::CPUPinning.",
            ),
        ] {
            let reply = shelf.get(ANNA, &path).await;
            assert_eq!((reply.status.as_u16(), &reply.body["message"]), (404, &json!(why)));
        }
    }
}

#[tokio::test]
async fn nobody_changes_the_definitions() {
    for shelf in shelves().await {
        let send = async |who: &str, method: &str, path: &str| -> Reply {
            shelf.call(who, method, path, "application/json", Body::from("{}")).await
        };
        for (method, path) in [
            ("POST", ALL.to_owned()),
            ("PUT", PINNING.to_owned()),
            ("DELETE", PINNING.to_owned()),
            ("POST", format!("{PINNING}/resource_types")),
            ("DELETE", format!("{PINNING}/resource_types/OS::Nova::Flavor")),
            ("POST", format!("{PINNING}/properties")),
            ("DELETE", format!("{PINNING}/properties")),
            ("PUT", format!("{PINNING}/properties/cpu_policy")),
            ("DELETE", format!("{PINNING}/properties/cpu_policy")),
            ("POST", format!("{PINNING}/objects")),
            ("DELETE", format!("{PINNING}/objects")),
            ("PUT", format!("{PINNING}/objects/x")),
            ("DELETE", format!("{PINNING}/objects/x")),
            ("POST", format!("{PINNING}/tags")),
            ("DELETE", format!("{PINNING}/tags")),
            ("POST", format!("{PINNING}/tags/x")),
            ("PUT", format!("{PINNING}/tags/x")),
            ("DELETE", format!("{PINNING}/tags/x")),
        ] {
            let admin = send(ADMIN, method, &path).await;
            let why = "The metadata definitions are built in and cannot be changed.";
            assert_eq!((admin.status.as_u16(), &admin.body["message"]), (403, &json!(why)));
            let member = send(ANNA, method, &path).await;
            assert_eq!(member.status, 403, "{method} {path}");
            assert_ne!(member.body["message"], why, "{method} {path}");
        }
        assert_eq!(send(ADMIN, "DELETE", &format!("{ALL}/x")).await.status, 404);
    }
}
