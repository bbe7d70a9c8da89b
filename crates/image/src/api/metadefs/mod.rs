//! Metadata definitions: the built-in catalog of [`table`], which nobody can change.
//!
//! Dashboards build their forms for extra specs, image properties and metadata from it. Bodies and messages are those of
//! `glance/api/v2/metadef_*.py`. Glance's own definitions are loaded by its operator, and may be changed.

mod table;

use std::collections::{BTreeSet, HashMap};

use axum::extract::{Path, State};
use axum::response::IntoResponse as _;
use kilonova_access::{Caller, Guard, Routes, delete, get, post, put};
use kilonova_wire::Refusal;
use kilonova_wire::query::Query;
use serde_json::{Map, Value, json};

use self::table::{Association, Form, Namespace, Property, TABLE};
use super::Answer;
use crate::Images;

/// The project that owns the definitions, as in those that `glance-manage` loads.
const OWNER: &str = "admin";
/// The attributes by which rules decide (`MetadefAPIPolicy` of `glance/api/v2/policy.py`).
const TARGET: [(&str, &str); 2] = [("project_id", OWNER), ("visibility", "public")];
/// The time of the definitions, which are as old as this table.
const SINCE: &str = "2026-11-28T00:00:00Z";

/// The rules for reading a namespace and all that it contains.
const READ_NAMESPACE: &[&str] = &[
    "get_metadef_namespace",
    "list_metadef_resource_types",
    "get_metadef_objects",
    "get_metadef_properties",
    "get_metadef_tags",
];
const READ_TYPES: &[&str] = &["list_metadef_resource_types", "get_metadef_resource_type"];
const READ_PROPERTIES: &[&str] = &["get_metadef_properties"];
const READ_PROPERTY: &[&str] = &["get_metadef_property"];
const READ_OBJECTS: &[&str] = &["get_metadef_objects"];
const READ_OBJECT: &[&str] = &["get_metadef_object"];
const READ_TAGS: &[&str] = &["get_metadef_tags"];
const READ_TAG: &[&str] = &["get_metadef_tag"];

pub(super) fn routes() -> Routes<Images> {
    const ALL: &str = "/v2/metadefs/namespaces";
    let at = |below: &str| format!("{ALL}/{{namespace}}{below}");
    Routes::new()
        .route("/v2/metadefs/resource_types", [get("list_metadef_resource_types", resource_types)])
        .route(
            ALL,
            [get("get_metadef_namespaces", namespaces), post("add_metadef_namespace", create)],
        )
        .route(
            at(""),
            [
                get(Guard::Object(READ_NAMESPACE), namespace),
                put("modify_metadef_namespace", change),
                delete("delete_metadef_namespace", change),
            ],
        )
        .route(
            at("/resource_types"),
            [
                get(Guard::Object(READ_TYPES), associations),
                post("add_metadef_resource_type_association", change),
            ],
        )
        .route(
            at("/resource_types/{resource_type}"),
            [delete("remove_metadef_resource_type_association", change)],
        )
        .route(
            at("/properties"),
            [
                get(Guard::Object(READ_PROPERTIES), properties),
                post("add_metadef_property", change),
                delete("delete_metadef_namespace", change),
            ],
        )
        .route(
            at("/properties/{property}"),
            [
                get(Guard::Object(READ_PROPERTY), property),
                put("modify_metadef_property", change),
                delete("remove_metadef_property", change),
            ],
        )
        .route(
            at("/objects"),
            [
                get(Guard::Object(READ_OBJECTS), objects),
                post("add_metadef_object", change),
                delete("delete_metadef_namespace", change),
            ],
        )
        .route(
            at("/objects/{object}"),
            [
                get(Guard::Object(READ_OBJECT), object),
                put("modify_metadef_object", change),
                delete("delete_metadef_object", change),
            ],
        )
        .route(
            at("/tags"),
            [
                get(Guard::Object(READ_TAGS), tags),
                post("add_metadef_tags", change),
                delete("delete_metadef_tags", change),
            ],
        )
        .route(
            at("/tags/{tag}"),
            [
                get(Guard::Object(READ_TAG), tag),
                post("add_metadef_tag", change),
                put("modify_metadef_tag", change),
                delete("delete_metadef_tag", change),
            ],
        )
}

async fn namespaces(State(images): State<Images>, caller: Caller, query: Query) -> Answer {
    caller.may_own("list_metadef_resource_types")?;
    let limit = images.page(&query)?;
    let mut found = after_marker(sorted(&query)?, &query)?;
    let visible = match query.get("visibility").filter(|value| !value.is_empty()) {
        None | Some("public") => caller.allows("get_metadef_namespace", &TARGET),
        Some("private") => false,
        Some(other) => {
            let other = other.escape_debug();
            return Err(Refusal::bad_request(format!("Invalid visibility value: {other}")));
        }
    };
    let types: Option<Vec<&str>> =
        query.get("resource_types").map(|list| list.split(',').collect());
    found.retain(|one| {
        let fits = |of: &Association| types.as_ref().is_none_or(|types| types.contains(&of.name));
        visible && one.of.iter().any(fits)
    });
    let more = found.len() > limit;
    found.truncate(limit);
    let mut body = json!({
        "namespaces": found.iter().map(|one| brief(one)).collect::<Vec<_>>(),
        "first": path(&query, None),
        "schema": "/v2/schemas/metadefs/namespaces",
    });
    if let Some(last) = found.last().filter(|_| more) {
        body["next"] = path(&query, Some(last.name)).into();
    }
    Ok(axum::Json(body).into_response())
}

/// All namespaces in the requested order. They have the same age, so that most keys leave the order of the table.
fn sorted(query: &Query) -> Result<Vec<&'static Namespace>, Refusal> {
    let mut all: Vec<&Namespace> = TABLE.iter().collect();
    match query.get("sort_key").unwrap_or("created_at") {
        "namespace" => all.sort_by_key(|one| one.name),
        "display_name" => all.sort_by_key(|one| one.title),
        "created_at" | "updated_at" | "id" | "owner" | "protected" | "visibility" => {}
        other => {
            let other = other.escape_debug();
            return Err(Refusal::bad_request(format!("Invalid sort key: {other}")));
        }
    }
    match query.get("sort_dir").unwrap_or("desc") {
        "asc" => {}
        "desc" => all.reverse(),
        other => {
            let other = other.escape_debug();
            return Err(Refusal::bad_request(format!("Invalid sort direction: {other}")));
        }
    }
    Ok(all)
}

fn after_marker(
    all: Vec<&'static Namespace>,
    query: &Query,
) -> Result<Vec<&'static Namespace>, Refusal> {
    let Some(marker) = query.get("marker").filter(|marker| !marker.is_empty()) else {
        return Ok(all);
    };
    let at = all.iter().position(|one| one.name == marker).ok_or_else(|| unknown(marker))?;
    Ok(all.into_iter().skip(at + 1).collect())
}

/// The path of the request with another marker, or without one.
fn path(query: &Query, marker: Option<&str>) -> String {
    let query = query.without("marker");
    let query = match marker {
        Some(name) => query.with(&[("marker", name)]),
        None => query.with(&[]),
    };
    let path = "/v2/metadefs/namespaces";
    if query.is_empty() { path.into() } else { format!("{path}?{query}") }
}

async fn resource_types(_: Caller) -> Answer {
    let names: BTreeSet<&str> =
        TABLE.iter().flat_map(|one| one.of.iter().map(|of| of.name)).collect();
    let view = |name: &str| json!({"name": name, "created_at": SINCE, "updated_at": SINCE});
    let types: Vec<Value> = names.into_iter().map(view).collect();
    Ok(axum::Json(json!({"resource_types": types})).into_response())
}

/// One namespace. With `resource_type`, its properties have the prefix for that type.
async fn namespace(caller: Caller, Path(name): Path<String>, query: Query) -> Answer {
    let found = find(&name).filter(|_| caller.allows("get_metadef_namespace", &TARGET));
    let found = found.ok_or_else(|| unknown(&name))?;
    READ_NAMESPACE.iter().try_for_each(|rule| caller.may(rule, &TARGET))?;
    let prefix = query.get("resource_type").and_then(|kind| association(found, kind)?.prefix);
    let mut body = brief(found);
    body["properties"] = views(found, prefix.unwrap_or_default());
    Ok(axum::Json(body).into_response())
}

async fn associations(caller: Caller, Path(name): Path<String>) -> Answer {
    let found = readable(&caller, &name, READ_TYPES)?;
    let body = json!({"resource_type_associations": associations_of(found)});
    Ok(axum::Json(body).into_response())
}

async fn properties(caller: Caller, Path(name): Path<String>) -> Answer {
    let found = readable(&caller, &name, READ_PROPERTIES)?;
    Ok(axum::Json(json!({"properties": views(found, "")})).into_response())
}

/// One property. With `resource_type`, its name has the prefix for that type.
async fn property(
    caller: Caller,
    Path((name, property)): Path<(String, String)>,
    query: Query,
) -> Answer {
    let found = readable(&caller, &name, READ_PROPERTY)?;
    let shown = property.escape_debug();
    let mut plain = property.as_str();
    if let Some(kind) = query.get("resource_type").filter(|kind| !kind.is_empty()) {
        caller.may("get_metadef_resource_type", &TARGET)?;
        let Some(of) = association(found, kind) else {
            return Err(Refusal::not_found(format!(
                "The metadata definition resource-type association of resource-type={} to \
                 namespace={}, was not found.",
                kind.escape_debug(),
                found.name
            )));
        };
        plain = of.prefix.and_then(|prefix| property.strip_prefix(prefix)).ok_or_else(|| {
            Refusal::not_found(format!(
                "Property {shown} does not start with the expected resource type association \
                 prefix of '{}'.",
                of.prefix.unwrap_or("None")
            ))
        })?;
    }
    let Some(one) = found.properties.iter().find(|one| one.name == plain) else {
        return Err(Refusal::not_found(format!(
            "The metadata definition property with name={} was not found in namespace={}.",
            plain.escape_debug(),
            found.name
        )));
    };
    let mut body = view(one);
    body["name"] = property.as_str().into();
    Ok(axum::Json(body).into_response())
}

async fn objects(caller: Caller, Path(name): Path<String>) -> Answer {
    readable(&caller, &name, READ_OBJECTS)?;
    let body = json!({"objects": [], "schema": "v2/schemas/metadefs/objects"});
    Ok(axum::Json(body).into_response())
}

async fn object(caller: Caller, Path((name, object)): Path<(String, String)>) -> Answer {
    let found = readable(&caller, &name, READ_OBJECT)?;
    Err(Refusal::not_found(format!(
        "The metadata definition object with name={} was not found in namespace={}.",
        object.escape_debug(),
        found.name
    )))
}

async fn tags(caller: Caller, Path(name): Path<String>) -> Answer {
    readable(&caller, &name, READ_TAGS)?;
    Ok(axum::Json(json!({"tags": []})).into_response())
}

async fn tag(caller: Caller, Path((name, tag)): Path<(String, String)>) -> Answer {
    let found = readable(&caller, &name, READ_TAG)?;
    Err(Refusal::not_found(format!(
        "The metadata definition tag with name={} was not found in namespace={}.",
        tag.escape_debug(),
        found.name
    )))
}

async fn create(_: Caller) -> Answer {
    Err(built_in())
}

async fn change(_: Caller, Path(path): Path<HashMap<String, String>>) -> Answer {
    let name = path.get("namespace").map(String::as_str).unwrap_or_default();
    Err(find(name).map_or_else(|| not_found(name), |_| built_in()))
}

fn built_in() -> Refusal {
    Refusal::forbidden("The metadata definitions are built in and cannot be changed.")
}

fn find(name: &str) -> Option<&'static Namespace> {
    TABLE.iter().find(|one| one.name == name)
}

/// A namespace that the caller may read by these rules.
fn readable(caller: &Caller, name: &str, rules: &[&str]) -> Result<&'static Namespace, Refusal> {
    let found = find(name).ok_or_else(|| not_found(name))?;
    if !caller.allows("get_metadef_namespace", &TARGET) {
        return Err(not_found(name));
    }
    rules.iter().try_for_each(|rule| caller.may(rule, &TARGET))?;
    Ok(found)
}

fn unknown(name: &str) -> Refusal {
    let name = name.escape_debug();
    Refusal::not_found(format!("Metadata definition namespace={name} was not found."))
}

fn not_found(name: &str) -> Refusal {
    Refusal::not_found(format!("Namespace {} not found", name.escape_debug()))
}

fn association(namespace: &'static Namespace, kind: &str) -> Option<&'static Association> {
    namespace.of.iter().find(|of| of.name == kind)
}

/// A namespace without its properties.
fn brief(namespace: &Namespace) -> Value {
    json!({
        "namespace": namespace.name,
        "display_name": namespace.title,
        "description": namespace.about,
        "visibility": "public",
        "protected": true,
        "owner": OWNER,
        "created_at": SINCE,
        "updated_at": SINCE,
        "resource_type_associations": associations_of(namespace),
        "self": format!("/v2/metadefs/namespaces/{}", namespace.name),
        "schema": "/v2/schemas/metadefs/namespace",
    })
}

fn associations_of(namespace: &Namespace) -> Vec<Value> {
    let view = |of: &Association| {
        let mut shown = json!({"name": of.name, "created_at": SINCE, "updated_at": SINCE});
        if let Some(prefix) = of.prefix {
            shown["prefix"] = prefix.into();
        }
        if let Some(target) = of.target {
            shown["properties_target"] = target.into();
        }
        shown
    };
    namespace.of.iter().map(view).collect()
}

/// The properties of a namespace by their names with this prefix.
fn views(namespace: &Namespace, prefix: &str) -> Value {
    let named = |one: &Property| (format!("{prefix}{}", one.name), view(one));
    Value::Object(namespace.properties.iter().map(named).collect::<Map<_, _>>())
}

fn view(property: &Property) -> Value {
    let mut shown = json!({"title": property.title, "description": property.about});
    shown["type"] = match property.form {
        Form::Text | Form::OneOf(_) => "string",
        Form::Number(_) => "integer",
    }
    .into();
    match property.form {
        Form::Text => {}
        Form::OneOf(values) => shown["enum"] = json!(values),
        Form::Number(least) => shown["minimum"] = least.into(),
    }
    if let Some(default) = property.default {
        shown["default"] = default.into();
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_texts_fit_the_schema() {
        let names: BTreeSet<&str> = TABLE.iter().map(|one| one.name).collect();
        assert_eq!(names.len(), TABLE.len());
        for one in TABLE {
            assert!(one.name.len() <= 80 && one.title.len() <= 80, "{}", one.name);
            assert!(one.about.len() <= 500 && !one.of.is_empty(), "{}", one.name);
            let keys: BTreeSet<&str> = one.properties.iter().map(|one| one.name).collect();
            assert_eq!(keys.len(), one.properties.len(), "{}", one.name);
            for property in one.properties {
                if let (Some(default), Form::OneOf(values)) = (property.default, property.form) {
                    assert!(values.contains(&default), "{}", property.name);
                }
            }
        }
    }

    /// A key that two namespaces define for a resource type would appear twice in a form.
    #[test]
    fn a_resource_type_has_each_key_once() {
        let mut keys = BTreeSet::new();
        for one in TABLE {
            for of in one.of {
                for property in one.properties {
                    let key = format!("{}{}", of.prefix.unwrap_or_default(), property.name);
                    assert!(keys.insert((of.name, of.target, key.clone())), "{}: {key}", of.name);
                }
            }
        }
    }
}
