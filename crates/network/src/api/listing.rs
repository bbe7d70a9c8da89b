//! Filters, fields, sorting and pagination, common to all collections and applied to views.

use std::collections::HashSet;

use axum::response::{IntoResponse as _, Response};
use kilonova_wire::query::Query;
use kilonova_wire::{Base, Refusal};
use serde_json::{Map, Value, json};

use super::filters::{Filters, NOT_FILTERS, TAGS};
use crate::error::malformed;
use crate::record::Body;

/// A collection's path segment and body key.
pub(super) struct Collection {
    pub path: &'static str,
    pub key: &'static str,
    /// The key of views that markers name.
    pub primary_key: &'static str,
    /// Keys of views that filters and sort keys may name but that no response shows.
    pub hidden: &'static [&'static str],
}

/// A view restricted to the requested `fields`.
pub(super) fn trim(mut view: Body, query: &Query) -> Body {
    retain(&mut view, &fields(query));
    view
}

fn fields(query: &Query) -> HashSet<&str> {
    query.all("fields").filter(|field| !field.is_empty()).collect()
}

fn retain(view: &mut Body, fields: &HashSet<&str>) {
    if !fields.is_empty() {
        view.retain(|key, _| fields.contains(key.as_str()));
    }
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
    let filters = Filters::of(query)?;
    let limit = limit(query)?;
    let marker = marker(collection.primary_key, query, limit);
    views.retain(|view| filters.pass(view) || marker.is_some_and(|marker| marker.names(view)));
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
    let fields = fields(query);
    let shown = |mut view: Body| {
        view.retain(|key, _| !collection.hidden.contains(&key.as_str()));
        retain(&mut view, &fields);
        view
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
    let good =
        |key: &str| known.contains(&key) || NOT_FILTERS.contains(&key) || TAGS.contains(&key);
    let wrong: Vec<&str> =
        query.0.iter().map(|(key, _)| key.as_str()).filter(|key| !good(key)).collect();
    if wrong.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = wrong.iter().map(|key| format!("'{}'", key.escape_debug())).collect();
    Err(malformed(format!("[{}] is invalid attribute for filtering", names.join(", "))))
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
    // A repeated key does not change the order.
    let mut seen = HashSet::new();
    let is_descending = |at: usize| directions.get(at) == Some(&"desc");
    let keys: Vec<(&str, bool)> = keys
        .iter()
        .enumerate()
        .filter(|(_, key)| seen.insert(**key))
        .map(|(at, key)| (*key, is_descending(at)))
        .collect();
    views.sort_by(|a, b| {
        let by = |(key, is_descending): &(&str, bool)| {
            let way = compare(a.get(*key), b.get(*key));
            if *is_descending { way.reverse() } else { way }
        };
        keys.iter().map(by).find(|way| way.is_ne()).unwrap_or(std::cmp::Ordering::Equal)
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
/// repeats the list without the database's filters.
pub(super) fn lacks_marker(views: &[Body], query: &Query) -> bool {
    let limit = limit(query).ok().flatten();
    let marker = marker("id", query, limit);
    marker.is_some_and(|marker| !views.iter().any(|view| marker.names(view)))
}

/// The index range of the page. A marker that does not pass the filters only determines where the page begins, as in
/// `_get_networks` of `neutron/db/db_base_plugin_v2.py`, and is removed from the views.
fn page(
    views: &mut Vec<Body>,
    filters: &Filters,
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
        if !views.get(at).is_some_and(|view| filters.pass(view)) {
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
