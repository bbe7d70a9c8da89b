//! `GET /v2/images`.

use axum::Router;
use axum::extract::State;
use axum::response::IntoResponse as _;
use axum::routing::get;
use kilonova_ids::{ImageId, parse_uuid_like};
use kilonova_wire::paging::Page;
use kilonova_wire::query::Query;
use kilonova_wire::{Context, Fault};
use serde_json::json;

use super::{Answer, images, view::view};
use crate::app::Filters;
use crate::{Images, Visibility};

pub(super) fn routes() -> Router<Images> {
    Router::new().route("/v2/images", get(list).post(images::create))
}

/// Keys that order the answer; the order here is always the newest first.
const IGNORED: [&str; 5] = ["limit", "marker", "sort", "sort_key", "sort_dir"];

async fn list(State(images): State<Images>, context: Context, query: Query) -> Answer {
    let page = Page::read(&query)?;
    let marker = match page.marker.as_deref().filter(|marker| !marker.is_empty()) {
        None => None,
        Some(marker) => Some(parse_uuid_like::<ImageId>(marker).ok_or_else(|| {
            Fault::bad_request(format!("Marker {} is no image.", marker.escape_debug()))
        })?),
    };
    let (found, more) = match read(&query)? {
        Some(filters) => images.list(&context, filters, marker, page.limit).await?,
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

/// The caller's own query with another marker.
fn path(query: &Query, marker: Option<ImageId>) -> String {
    let query = query.without("marker");
    let query = match marker {
        Some(id) => query.with(&[("marker", &id.to_string())]),
        None => query.with(&[]),
    };
    if query.is_empty() { "/v2/images".into() } else { format!("/v2/images?{query}") }
}

/// The filters; `None` when nothing can match.
fn read(query: &Query) -> Result<Option<Filters>, Fault> {
    let mut filters = Filters::default();
    for (key, value) in &query.0 {
        if value.chars().chain(key.chars()).any(char::is_control) {
            return Ok(None);
        }
        match key.as_str() {
            key if IGNORED.contains(&key) => {}
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
                    return Err(Fault::bad_request(format!("Invalid visibility value: {value}")));
                }
            },
            "os_hidden" => filters.hidden = flag(key, value)?,
            "protected" => filters.protected = Some(flag(key, value)?),
            "size_min" => filters.size_min = Some(number(key, value)?),
            "size_max" => filters.size_max = Some(number(key, value)?),
            "member_status" => {}
            _ => filters.properties.push((key.clone(), value.clone())),
        }
    }
    Ok(Some(filters))
}

/// One word, or those of `in:a,"b,c"`.
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

fn flag(key: &str, value: &str) -> Result<bool, Fault> {
    match value.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => {
            Err(Fault::bad_request(format!("Invalid value for {key}: it has to be true or false.")))
        }
    }
}

fn number(key: &str, value: &str) -> Result<i64, Fault> {
    value.parse().ok().filter(|number| *number >= 0).ok_or_else(|| {
        Fault::bad_request(format!("Invalid value for {key}: it has to be a whole number."))
    })
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn words_of_a_list() {
        assert_eq!(words("a,b"), ["a,b"]);
        assert_eq!(words("in:a,b"), ["a", "b"]);
        assert_eq!(words("in:\"a,b\",c"), ["a,b", "c"]);
        assert_eq!(words("in:"), [""]);
    }
}
