//! `GET /v2/images`.

use axum::extract::State;
use axum::response::IntoResponse as _;
use kilonova_access::{Guard, Routes, get, post};
use kilonova_ids::{ImageId, parse_uuid_like};
use kilonova_wire::query::Query;
use kilonova_wire::{Context, Refusal};
use serde_json::json;

use super::{Answer, images, view::view};
use crate::app::{Direction, ImageFilters, Sort, SortKey};
use crate::{Acceptance, Images, Visibility};

pub(super) fn routes() -> Routes<Images> {
    Routes::new().route(
        "/v2/images",
        [get("get_images", list), post(Guard::Object(&["add_image"]), images::create)],
    )
}

/// Keys that are not filters: they select the page and its order.
const PAGING: [&str; 5] = ["limit", "marker", "sort", "sort_key", "sort_dir"];

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

/// The request's own path with another marker.
fn path(query: &Query, marker: Option<ImageId>) -> String {
    let query = query.without("marker");
    let query = match marker {
        Some(id) => query.with(&[("marker", &id.to_string())]),
        None => query.with(&[]),
    };
    if query.is_empty() { "/v2/images".into() } else { format!("/v2/images?{query}") }
}

/// Parses the filters; `None` if nothing can match.
fn read(query: &Query) -> Result<Option<ImageFilters>, Refusal> {
    let mut filters =
        ImageFilters { shared: Some(Acceptance::Accepted), ..ImageFilters::default() };
    for (key, value) in &query.0 {
        if value.chars().chain(key.chars()).any(char::is_control) {
            return Ok(None);
        }
        match key.as_str() {
            key if PAGING.contains(&key) => {}
            "id" => {
                filters.ids = Some(words(value).iter().filter_map(|w| parse_uuid_like(w)).collect())
            }
            "name" => filters.names = words(value),
            "status" => filters.statuses = words(value),
            "disk_format" => filters.disk_formats = words(value),
            "container_format" => filters.container_formats = words(value),
            "owner" => filters.owner = Some(value.clone()),
            "tag" => filters.tags.push(value.clone()),
            "visibility" if value == "all" => filters.all = true,
            "visibility" => match Visibility::parse(value) {
                Some(visibility) => filters.visibility = Some(visibility),
                None => {
                    return Err(Refusal::bad_request(format!("Invalid visibility value: {value}")));
                }
            },
            "os_hidden" => filters.hidden = flag(key, value)?,
            "protected" => filters.protected = Some(flag(key, value)?),
            "size_min" => filters.size_min = Some(number(key, value)?),
            "size_max" => filters.size_max = Some(number(key, value)?),
            "member_status" if value == "all" => filters.shared = None,
            "member_status" => match Acceptance::parse(value) {
                Some(status) => filters.shared = Some(status),
                None => return Err(Refusal::bad_request(format!("Invalid status: {value}"))),
            },
            _ => filters.properties.push((key.clone(), value.clone())),
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

/// A single value, or the values of `in:a,"b,c"`.
fn words(value: &str) -> Vec<String> {
    let Some(list) = value.strip_prefix("in:") else { return vec![value.to_owned()] };
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for c in list.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => words.push(std::mem::take(&mut word)),
            _ => word.push(c),
        }
    }
    words.push(word);
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

fn number(key: &str, value: &str) -> Result<i64, Refusal> {
    value.parse().ok().filter(|number| *number >= 0).ok_or_else(|| {
        Refusal::bad_request(format!("Invalid value for {key}: it must be a non-negative integer."))
    })
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn in_lists_are_split() {
        assert_eq!(words("a,b"), ["a,b"]);
        assert_eq!(words("in:a,b"), ["a", "b"]);
        assert_eq!(words("in:\"a,b\",c"), ["a,b", "c"]);
        assert_eq!(words("in:"), [""]);
    }
}
