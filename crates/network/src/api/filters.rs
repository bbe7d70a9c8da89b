//! The filters of a list. They are grouped once for each request, so that the work for each view does not grow with
//! keys or values that the query repeats.

use std::collections::{BTreeMap, HashSet};

use kilonova_wire::Refusal;
use kilonova_wire::query::Query;
use serde_json::{Value, json};

use crate::attributes::Check;
use crate::error::invalid_value;
use crate::record::Body;
use crate::values;

/// Query keys that are not filters.
pub(super) const NOT_FILTERS: [&str; 6] =
    ["fields", "limit", "marker", "page_reverse", "sort_key", "sort_dir"];
/// Filters that are not attributes.
pub(super) const TAGS: [&str; 4] = ["tags", "tags-any", "not-tags", "not-tags-any"];

/// The filters of a query by key. A view must pass all of them.
pub(super) struct Filters(BTreeMap<String, Filter>);

enum Filter {
    /// The tags in all values of the key, as in `_get_tag_list` of `neutron/objects/tag.py`.
    Tags(HashSet<String>),
    /// The accepted values by key of a fixed IP.
    Addresses(BTreeMap<String, HashSet<String>>),
    Values(Accepted),
}

/// The values of an attribute that pass.
struct Accepted {
    texts: HashSet<String>,
    with_true: bool,
    with_false: bool,
    with_none: bool,
}

impl Filters {
    /// The filters of a query, with values in the form that views use, as in `get_filters_from_dict` of
    /// `neutron/api/api_common.py`.
    pub fn of(query: &Query) -> Result<Self, Refusal> {
        let mut grouped: BTreeMap<&str, HashSet<String>> = BTreeMap::new();
        for (key, value) in &query.0 {
            if !NOT_FILTERS.contains(&key.as_str()) {
                grouped.entry(key).or_default().insert(converted(key, value)?);
            }
        }
        let filter = |(key, values): (&str, HashSet<String>)| {
            let filter = match key {
                "fixed_ips" => Filter::Addresses(addresses(&values)),
                key if TAGS.contains(&key) => Filter::Tags(
                    values.iter().flat_map(|value| value.split(',')).map(str::to_owned).collect(),
                ),
                _ => Filter::Values(Accepted::new(values)),
            };
            (key.to_owned(), filter)
        };
        Ok(Self(grouped.into_iter().map(filter).collect()))
    }

    pub fn pass(&self, view: &Body) -> bool {
        self.0.iter().all(|(key, filter)| match filter {
            Filter::Tags(tags) => tagged(view, key, tags),
            Filter::Addresses(accepted) => {
                let has = view.get(key).unwrap_or(&Value::Null);
                accepted.iter().all(|(key, values)| with_address(has, key, values))
            }
            Filter::Values(accepted) => accepted.has(view.get(key).unwrap_or(&Value::Null)),
        })
    }
}

impl Accepted {
    fn new(texts: HashSet<String>) -> Self {
        let is = |one: &str, other: &str| {
            texts.iter().any(|text| text == other || text.eq_ignore_ascii_case(one))
        };
        Self {
            with_true: is("true", "1"),
            with_false: is("false", "0"),
            with_none: texts.iter().any(|text| means_none(text)),
            texts,
        }
    }

    fn has(&self, value: &Value) -> bool {
        match value {
            Value::Null => self.with_none,
            Value::Bool(true) => self.with_true,
            Value::Bool(false) => self.with_false,
            Value::String(text) => self.texts.contains(text),
            Value::Array(all) => all.iter().any(|one| self.has(one)),
            other => self.texts.contains(&other.to_string()),
        }
    }
}

fn means_none(text: &str) -> bool {
    matches!(text, "" | "None" | "null")
}

fn converted(key: &str, value: &str) -> Result<String, Refusal> {
    let check: Check = match key {
        "ethertype" => values::ethertype,
        "mac_address" => values::mac,
        "protocol" => values::protocol,
        "remote_ip_prefix" => values::prefix_or_none,
        _ => return Ok(value.to_owned()),
    };
    match check(&json!(value)) {
        _ if means_none(value) => Ok(value.to_owned()),
        Ok(Value::String(text)) => Ok(text),
        Ok(_) => Ok(String::new()),
        // Upstream accepts any text as a MAC address; an invalid one matches no port.
        Err(_) if key == "mac_address" => Ok(value.to_owned()),
        Err(why) => Err(invalid_value(key, why)),
    }
}

/// Groups `ip_address=10.0.0.3`, `subnet_id=…` and `ip_address_substr=10.0`. For each key that is given, at least one
/// of its values must match, as in `_get_ports_query` of `neutron/db/db_base_plugin_v2.py`.
fn addresses(values: &HashSet<String>) -> BTreeMap<String, HashSet<String>> {
    let mut grouped: BTreeMap<String, HashSet<String>> = BTreeMap::new();
    for value in values {
        let pair = value.split_once('=').or_else(|| value.split_once(':'));
        let (key, value) = pair.unwrap_or((value, ""));
        grouped.entry(key.to_owned()).or_default().insert(value.to_owned());
    }
    grouped
}

fn with_address(has: &Value, key: &str, values: &HashSet<String>) -> bool {
    has.as_array().into_iter().flatten().any(|fixed| match key {
        "ip_address_substr" => fixed["ip_address"]
            .as_str()
            .is_some_and(|address| values.iter().any(|value| address.contains(value))),
        key => fixed[key].as_str().is_some_and(|value| values.contains(value)),
    })
}

/// Applies a filter of [`TAGS`], as in `_apply_tag_filters` of `neutron/objects/tag.py`.
fn tagged(view: &Body, key: &str, wanted: &HashSet<String>) -> bool {
    let tags = view.get("tags").and_then(Value::as_array);
    let tags = tags.into_iter().flatten().filter_map(Value::as_str);
    // The tags of a resource are distinct.
    let found = tags.filter(|tag| wanted.contains(*tag)).count();
    match key {
        "tags" => found == wanted.len(),
        "tags-any" => found > 0,
        "not-tags" => found < wanted.len(),
        _ => found == 0,
    }
}
