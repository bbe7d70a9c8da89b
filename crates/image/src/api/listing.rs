//! `GET /v2/images`.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use axum::extract::State;
use axum::response::IntoResponse as _;
use kilonova_access::{Guard, Routes, get, post};
use kilonova_ids::{ImageId, parse_uuid_like};
use kilonova_wire::query::Query;
use kilonova_wire::{Context, Refusal, time};
use serde_json::json;

use super::{Answer, images, view::view};
use crate::app::{Amount, Direction, ImageFilters, Moment, Sort, SortKey, TimeFilter};
use crate::{Acceptance, Images, Visibility};

pub(super) fn routes() -> Routes<Images> {
    Routes::new().route(
        "/v2/images",
        [get("get_images", list), post(Guard::Object(&["add_image"]), images::create)],
    )
}

/// Keys that are not filters: they select the page and its order. `deleted` has no effect, as in
/// Glance, which lists no deleted images.
const NOT_FILTERS: [&str; 6] = ["limit", "marker", "sort", "sort_key", "sort_dir", "deleted"];

async fn list(State(images): State<Images>, context: Context, query: Query) -> Answer {
    let limit = images.page(&query)?;
    let sort = sort(&query)?;
    let marker = match query.get("marker").filter(|marker| !marker.is_empty()) {
        None => None,
        Some(marker) => Some(parse_uuid_like::<ImageId>(marker).ok_or_else(|| {
            Refusal::bad_request(format!("Marker {} is not an image.", marker.escape_debug()))
        })?),
    };
    let (found, more) = match read(&query)? {
        Some(filters) => images.list_sorted(&context, filters, sort, marker, limit).await?,
        None => (Vec::new(), false),
    };
    let mut body = json!({
        "images": found.iter().map(view).collect::<Vec<_>>(),
        "first": path(&query, None),
        "schema": "/v2/schemas/images",
    });
    if let Some(last) = found.last().filter(|_| more) {
        body["next"] = path(&query, Some(last.id)).into();
    }
    Ok(axum::Json(body).into_response())
}

impl Images {
    /// The page size for a query.
    pub(super) fn page(&self, query: &Query) -> Result<usize, Refusal> {
        let max = self.options.max_page;
        let Some(text) = query.get("limit").filter(|text| !text.is_empty()) else {
            return Ok(self.options.default_page.min(max));
        };
        match text.trim().parse::<i128>() {
            Err(_) => Err(Refusal::bad_request("limit param must be an integer")),
            Ok(limit) if limit < 0 => Err(Refusal::bad_request("limit param must be positive")),
            Ok(limit) => Ok(usize::try_from(limit).unwrap_or(max).min(max)),
        }
    }
}

/// The path of the request with another marker, or without one.
fn path(query: &Query, marker: Option<ImageId>) -> String {
    let query = query.without("marker");
    let query = match marker {
        Some(id) => query.with(&[("marker", &id.to_string())]),
        None => query.with(&[]),
    };
    if query.is_empty() { "/v2/images".into() } else { format!("/v2/images?{query}") }
}

/// Parses the filters; `None` if nothing can match. A key that names no attribute of an image names a
/// property, as in `_make_conditions_from_filters` of `glance/db/sqlalchemy/api.py`.
fn read(query: &Query) -> Result<Option<ImageFilters>, Refusal> {
    let mut filters =
        ImageFilters { shared: Some(Acceptance::Accepted), ..ImageFilters::default() };
    for (key, value) in &query.0 {
        if value.chars().chain(key.chars()).any(char::is_control) {
            return Ok(None);
        }
        match key.as_str() {
            key if NOT_FILTERS.contains(&key) => {}
            "id" => {
                filters.ids = Some(words(value).iter().filter_map(|w| parse_uuid_like(w)).collect())
            }
            "name" => filters.names = words(value),
            "status" => filters.statuses = words(value),
            "disk_format" => filters.disk_formats = words(value),
            "container_format" => filters.container_formats = words(value),
            "owner" => filters.owner = Some(value.clone()),
            "tag" => {
                filters.tags.insert(value.clone());
            }
            "visibility" if value == "all" => filters.all = true,
            "visibility" => match Visibility::parse(value) {
                Some(visibility) => filters.visibility = Some(visibility),
                None => {
                    return Err(Refusal::bad_request(format!("Invalid visibility value: {value}")));
                }
            },
            "os_hidden" => filters.hidden = flag(key, value)?,
            "protected" => filters.protected = Some(flag(key, value)?),
            "checksum" => filters.checksum = Some(value.clone()),
            "os_hash_value" => filters.hash = Some(value.clone()),
            "os_hash_algo" => filters.hash_algorithm = Some(value.clone()),
            "created_at" => filters.times.push(time_filter(Moment::Created, key, value)?),
            "updated_at" => filters.times.push(time_filter(Moment::Updated, key, value)?),
            "changes-since" if !value.is_empty() => {
                return Err(Refusal::bad_request(
                    "The \"changes-since\" filter is no longer available on v2.",
                ));
            }
            "member_status" if value == "all" => filters.shared = None,
            "member_status" => match Acceptance::parse(value) {
                Some(status) => filters.shared = Some(status),
                None => return Err(Refusal::bad_request(format!("Invalid status: {value}"))),
            },
            key => match range(key, value)? {
                Some(filter) => filters.amounts.push(filter),
                None => {
                    filters.properties.insert((key.to_owned(), value.clone()));
                }
            },
        }
    }
    Ok(Some(filters))
}

/// The order, in either of Glance's notations: `sort=name:asc,size` or
/// `sort_key=name&sort_dir=asc`. A single `sort_dir` applies to every key; without one the order is
/// descending.
fn sort(query: &Query) -> Result<Sort, Refusal> {
    let list: Vec<&str> = query.all("sort").collect();
    let keys: Vec<&str> = query.all("sort_key").collect();
    let directions: Vec<&str> = query.all("sort_dir").collect();
    if let Some(list) = list.first() {
        if !keys.is_empty() || !directions.is_empty() {
            return Err(Refusal::bad_request("Old and new sorting syntax cannot be combined"));
        }
        let word = |word: &str| match word.split_once(':') {
            Some((key, direction)) if !direction.is_empty() => {
                Ok((sort_key(key)?, sort_direction(direction)?))
            }
            Some((key, _)) => Ok((sort_key(key)?, Direction::Descending)),
            None => Ok((sort_key(word)?, Direction::Descending)),
        };
        let keys = list.split(',').map(word).collect::<Result<Vec<_>, Refusal>>()?;
        let rest = match keys.as_slice() {
            [(_, direction)] => *direction,
            _ => Direction::Descending,
        };
        return Ok(Sort::new(keys, rest));
    }
    let keys = keys.into_iter().map(sort_key).collect::<Result<Vec<_>, _>>()?;
    let keys = if keys.is_empty() { vec![SortKey::CreatedAt] } else { keys };
    let directions = directions.into_iter().map(sort_direction).collect::<Result<Vec<_>, _>>()?;
    let (directions, rest) = match directions.as_slice() {
        [] => (vec![Direction::Descending; keys.len()], Direction::Descending),
        [one] => (vec![*one; keys.len()], *one),
        several if several.len() == keys.len() => (several.to_vec(), Direction::Descending),
        _ => {
            return Err(Refusal::bad_request(
                "Number of sort dirs does not match the number of sort keys",
            ));
        }
    };
    Ok(Sort::new(keys.into_iter().zip(directions).collect(), rest))
}

fn sort_key(name: &str) -> Result<SortKey, Refusal> {
    let name = name.trim();
    SortKey::parse(name)
        .ok_or_else(|| Refusal::bad_request(format!("Invalid sort key: {}", name.escape_debug())))
}

fn sort_direction(name: &str) -> Result<Direction, Refusal> {
    let name = name.trim();
    Direction::parse(name).ok_or_else(|| {
        Refusal::bad_request(format!("Invalid sort direction: {}", name.escape_debug()))
    })
}

/// A single value, optionally prefixed with `eq:`, or the values of `in:a,"b,c"`. A set, because a query can have
/// thousands of values, and each image is compared with them.
fn words(value: &str) -> BTreeSet<String> {
    let Some(list) = value.strip_prefix("in:") else {
        return [value.strip_prefix("eq:").unwrap_or(value).to_owned()].into();
    };
    let (mut words, mut word, mut quoted) = (BTreeSet::new(), String::new(), false);
    for c in list.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => {
                words.insert(std::mem::take(&mut word));
            }
            _ => word.push(c),
        }
    }
    words.insert(word);
    words
}

fn flag(key: &str, value: &str) -> Result<bool, Refusal> {
    match value.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => {
            Err(Refusal::bad_request(format!("Invalid value for {key}: it must be true or false.")))
        }
    }
}

/// Parses a filter on a number: `AMOUNT`, `AMOUNT_min` or `AMOUNT_max`; `None` for other keys.
fn range(key: &str, value: &str) -> Result<Option<(Amount, RangeInclusive<i64>)>, Refusal> {
    let least = key.strip_suffix("_min").and_then(Amount::parse);
    let most = key.strip_suffix("_max").and_then(Amount::parse);
    let Some(amount) = least.or(most).or_else(|| Amount::parse(key)) else { return Ok(None) };
    let number: i128 = value.trim().parse().map_err(|_| {
        Refusal::bad_request("Unable to filter on a range with a non-numeric value.")
    })?;
    // No image has a number at the limits, so clamping does not change the result.
    let number = i64::try_from(number).unwrap_or(if number < 0 { i64::MIN } else { i64::MAX });
    Ok(Some((
        amount,
        match (least, most) {
            (Some(_), _) => number..=i64::MAX,
            (None, Some(_)) => i64::MIN..=number,
            (None, None) => number..=number,
        },
    )))
}

/// A condition on a time, `OPERATOR:TIME` or `TIME`, as in `split_filter_op` and
/// `evaluate_filter_op` of `glance/common/utils.py`.
fn time_filter(moment: Moment, key: &str, value: &str) -> Result<TimeFilter, Refusal> {
    let (operator, text) = match value.split_once(':') {
        Some((operator, text)) if time::parse(value).is_none() => (operator, text),
        _ => ("eq", value),
    };
    let than = time::parse(text).ok_or_else(|| {
        Refusal::bad_request(format!(
            "Bad \"{key}\" query filter format. Use ISO 8601 DateTime notation."
        ))
    })?;
    let passes: fn(Ordering) -> bool = match operator {
        "eq" => Ordering::is_eq,
        "neq" => Ordering::is_ne,
        "gt" => Ordering::is_gt,
        "gte" => Ordering::is_ge,
        "lt" => Ordering::is_lt,
        "lte" => Ordering::is_le,
        _ => return Err(Refusal::bad_request("Unable to filter on a unknown operator.")),
    };
    Ok(TimeFilter { moment, passes, than })
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn in_lists_are_split() {
        let words = |value: &str| words(value).into_iter().collect::<Vec<_>>();
        assert_eq!(words("a,b"), ["a,b"]);
        assert_eq!(words("in:b,a,b"), ["a", "b"]);
        assert_eq!(words("in:\"a,b\",c"), ["a,b", "c"]);
        assert_eq!(words("in:"), [""]);
        assert_eq!(words("eq:a,b"), ["a,b"]);
        assert_eq!(words("a:b"), ["a:b"]);
    }
}
