//! Filters, fields, sorting and pagination, common to all collections and applied to views.

use std::collections::BTreeMap;

use axum::response::{IntoResponse as _, Response};
use kilonova_wire::query::Query;
use kilonova_wire::{Base, Refusal};
use serde_json::{Map, Value, json};

use crate::attributes::Check;
use crate::error::{invalid_value, malformed};
use crate::record::Body;
use crate::values;

/// A collection's path segment and body key.
pub(super) struct Collection {
    pub path: &'static str,
    pub key: &'static str,
    /// The key of views that markers name.
    pub primary_key: &'static str,
    /// Keys of views that filters and sort keys may name but that no response shows.
    pub hidden: &'static [&'static str],
}

/// Query keys that are not filters.
const NO_FILTERS: [&str; 6] = ["fields", "limit", "marker", "page_reverse", "sort_key", "sort_dir"];
/// Filters that are not attributes.
const TAGS: [&str; 4] = ["tags", "tags-any", "not-tags", "not-tags-any"];

/// A view restricted to the requested `fields`.
pub(super) fn trim(mut view: Body, query: &Query) -> Body {
    let fields: Vec<&str> = query.all("fields").filter(|field| !field.is_empty()).collect();
    if !fields.is_empty() {
        view.retain(|key, _| fields.contains(&key.as_str()));
    }
    view
}

/// The complete list response.
pub(super) fn answer(
    collection: &Collection,
    known: &[&str],
    mut views: Vec<Body>,
    query: &Query,
    base: &Base,
) -> Result<Response, Refusal> {
    check(known, query)?;
    let filters = converted(query)?;
    let limit = limit(query)?;
    let marker = marker(collection.primary_key, query, limit);
    views.retain(|view| passes(view, &filters) || marker.is_some_and(|marker| marker.names(view)));
    sort(&mut views, known, query)?;
    let reverse = query.get("page_reverse").is_some_and(is_true);
    let (first, last) = page(&mut views, &filters, marker, limit, reverse)?;
    let mut links = Vec::new();
    let mut link = |rel: &str, view: Option<&Body>, backwards: bool| {
        let Some(marker) =
            view.and_then(|view| view.get(collection.primary_key)).and_then(Value::as_str)
        else {
            return;
        };
        let reversed: &[_] = if backwards { &[("page_reverse", "True")] } else { &[] };
        let query = query.without("page_reverse").with(&[&[("marker", marker)], reversed].concat());
        let href = format!("{}/v2.0/{}?{query}", base.0, collection.path);
        links.push(json!({"rel": rel, "href": href}));
    };
    if limit.is_some() {
        if last < views.len() {
            link("next", last.checked_sub(1).and_then(|at| views.get(at)), false);
        }
        if first > 0 {
            link("previous", views.get(first), true);
        }
    }
    let shown = |mut view: Body| {
        view.retain(|key, _| !collection.hidden.contains(&key.as_str()));
        trim(view, query)
    };
    let page: Vec<Body> = views.drain(first..last).map(shown).collect();
    let mut body = Map::new();
    body.insert(collection.key.to_owned(), json!(page));
    if !links.is_empty() {
        body.insert(format!("{}_links", collection.key), links.into());
    }
    Ok(axum::Json(body).into_response())
}

fn is_true(text: &str) -> bool {
    matches!(text.to_ascii_lowercase().as_str(), "true" | "1")
}

/// Refuses filters on unknown attributes.
fn check(known: &[&str], query: &Query) -> Result<(), Refusal> {
    let good = |key: &str| known.contains(&key) || NO_FILTERS.contains(&key) || TAGS.contains(&key);
    let wrong: Vec<&str> =
        query.0.iter().map(|(key, _)| key.as_str()).filter(|key| !good(key)).collect();
    if wrong.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = wrong.iter().map(|key| format!("'{}'", key.escape_debug())).collect();
    Err(malformed(format!("[{}] is invalid attribute for filtering", names.join(", "))))
}

/// Converts the filters of a query to the form that views use, as in `get_filters_from_dict` of
/// `neutron/api/api_common.py`.
fn converted(query: &Query) -> Result<Query, Refusal> {
    let convert = |(key, value): &(String, String)| {
        let check: Check = match key.as_str() {
            "ethertype" => values::ethertype,
            "mac_address" => values::mac,
            "protocol" => values::protocol,
            "remote_ip_prefix" => values::prefix_or_none,
            _ => return Ok((key.clone(), value.clone())),
        };
        let text = match check(&json!(value)) {
            _ if is(&Value::Null, value) => value.clone(),
            Ok(Value::String(text)) => text,
            Ok(_) => String::new(),
            // Upstream accepts any text as a MAC address; an invalid one matches no port.
            Err(_) if key == "mac_address" => value.clone(),
            Err(why) => return Err(invalid_value(key, why)),
        };
        Ok((key.clone(), text))
    };
    Ok(Query(query.0.iter().map(convert).collect::<Result<_, _>>()?))
}

fn passes(view: &Body, query: &Query) -> bool {
    let mut keys: Vec<&str> = query.0.iter().map(|(key, _)| key.as_str()).collect();
    keys.retain(|key| !NO_FILTERS.contains(key));
    keys.dedup();
    keys.into_iter().all(|key| {
        if TAGS.contains(&key) {
            return query.all(key).all(|value| tagged(view, key, value));
        }
        let has = view.get(key).unwrap_or(&Value::Null);
        if key == "fixed_ips" {
            return with_addresses(has, query.all(key));
        }
        query.all(key).any(|value| is(has, value))
    })
}

/// True if a value matches a filter.
fn is(has: &Value, value: &str) -> bool {
    match has {
        Value::Null => value.is_empty() || value == "None" || value == "null",
        Value::Bool(has) => match value.to_ascii_lowercase().as_str() {
            "true" | "1" => *has,
            "false" | "0" => !has,
            _ => false,
        },
        Value::String(has) => has == value,
        Value::Array(all) => all.iter().any(|one| is(one, value)),
        other => {
            let has = other.to_string();
            has == value
        }
    }
}

/// Matches `ip_address=10.0.0.3`, `subnet_id=…` and `ip_address_substr=10.0`. For each key that is given, at least one
/// of its values must match, as in `_get_ports_query` of `neutron/db/db_base_plugin_v2.py`.
fn with_addresses<'a>(has: &Value, values: impl Iterator<Item = &'a str>) -> bool {
    let mut keys = BTreeMap::new();
    for value in values {
        let pair = value.split_once('=').or_else(|| value.split_once(':'));
        let (key, value) = pair.unwrap_or((value, ""));
        *keys.entry(key).or_insert(false) |= with_address(has, key, value);
    }
    keys.into_values().all(|matches| matches)
}

fn with_address(has: &Value, key: &str, value: &str) -> bool {
    has.as_array().into_iter().flatten().any(|fixed| match key {
        "ip_address_substr" => {
            fixed["ip_address"].as_str().is_some_and(|address| address.contains(value))
        }
        key => fixed[key] == value,
    })
}

fn tagged(view: &Body, key: &str, value: &str) -> bool {
    let has = |tag: &str| view.get("tags").is_some_and(|tags| is(tags, tag));
    let mut tags = value.split(',');
    match key {
        "tags" => tags.all(has),
        "tags-any" => tags.any(has),
        "not-tags" => !tags.all(has),
        _ => !tags.any(has),
    }
}

fn sort(views: &mut [Body], known: &[&str], query: &Query) -> Result<(), Refusal> {
    let keys: Vec<&str> = query.all("sort_key").collect();
    let directions: Vec<&str> = query.all("sort_dir").collect();
    if !directions.is_empty() && directions.len() != keys.len() {
        return Err(malformed("The number of sort_keys and sort_dirs must be same"));
    }
    if let Some(wrong) = keys.iter().find(|key| !known.contains(key)) {
        return Err(malformed(format!(
            "['{}'] is invalid attribute for sort_keys",
            wrong.escape_debug()
        )));
    }
    if let Some(wrong) = directions.iter().find(|way| !["asc", "desc"].contains(way)) {
        return Err(malformed(format!(
            "{} is invalid attribute for sort_dirs, valid value is 'asc' and 'desc'",
            wrong.escape_debug()
        )));
    }
    views.sort_by(|a, b| {
        let by = |(at, key): (usize, &&str)| {
            let way = compare(a.get(*key), b.get(*key));
            if directions.get(at) == Some(&"desc") { way.reverse() } else { way }
        };
        keys.iter().enumerate().map(by).find(|way| way.is_ne()).unwrap_or(std::cmp::Ordering::Equal)
    });
    Ok(())
}

fn compare(a: Option<&Value>, b: Option<&Value>) -> std::cmp::Ordering {
    match (a, b) {
        (Some(Value::Number(a)), Some(Value::Number(b))) => a.as_i64().cmp(&b.as_i64()),
        (Some(Value::String(a)), Some(Value::String(b))) => a.cmp(b),
        (a, b) => {
            let text = |value: Option<&Value>| value.map(Value::to_string);
            text(a).cmp(&text(b))
        }
    }
}

fn limit(query: &Query) -> Result<Option<usize>, Refusal> {
    match query.get("limit") {
        None | Some("") => Ok(None),
        Some(text) => match text.parse::<i64>() {
            Ok(0) => Ok(None),
            Ok(number) if number > 0 => Ok(usize::try_from(number).ok()),
            _ => Err(malformed(format!(
                "Limit must be an integer 0 or greater and not '{}'",
                text.escape_debug()
            ))),
        },
    }
}

/// The marker of a query; without a limit it has no effect, as in `get_limit_and_marker` of
/// `neutron/api/api_common.py`.
fn marker<'a>(key: &'static str, query: &'a Query, limit: Option<usize>) -> Option<Marker<'a>> {
    let value = query.get("marker").filter(|value| !value.is_empty() && limit.is_some())?;
    Some(Marker { key, value })
}

/// The value of a collection's primary key that a query names as its marker.
#[derive(Clone, Copy)]
struct Marker<'a> {
    key: &'static str,
    value: &'a str,
}

impl Marker<'_> {
    fn names(self, view: &Body) -> bool {
        view.get(self.key).is_some_and(|id| id == self.value)
    }
}

/// True if a query has a marker that is not among the views. A marker need not pass the filters, so the caller then
/// lists again without those of the database.
pub(super) fn lacks_marker(views: &[Body], query: &Query) -> bool {
    let limit = limit(query).ok().flatten();
    let marker = marker("id", query, limit);
    marker.is_some_and(|marker| !views.iter().any(|view| marker.names(view)))
}

/// The index range of the page. A marker that does not pass the filters only determines where the page begins, as in
/// `_get_networks` of `neutron/db/db_base_plugin_v2.py`, and is removed from the views.
fn page(
    views: &mut Vec<Body>,
    filters: &Query,
    marker: Option<Marker<'_>>,
    limit: Option<usize>,
    reverse: bool,
) -> Result<(usize, usize), Refusal> {
    let (mut before, mut after) = (views.len(), 0);
    if let Some(marker) = marker {
        let at = views.iter().position(|view| marker.names(view)).ok_or_else(|| {
            let value = marker.value.escape_debug();
            malformed(format!("The marker '{value}' could not be found"))
        })?;
        (before, after) = (at, at + 1);
        if !views.get(at).is_some_and(|view| passes(view, filters)) {
            views.remove(at);
            after = at;
        }
    }
    let limit = limit.unwrap_or(usize::MAX);
    if reverse {
        return Ok((before.saturating_sub(limit), before));
    }
    Ok((after, after.saturating_add(limit).min(views.len())))
}
