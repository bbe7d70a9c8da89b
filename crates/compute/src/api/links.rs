//! Links in answers: to a resource and to the next page of a list.

use kilonova_wire::Base;
use kilonova_wire::query::Query;
use serde_json::{Value, json};

/// The links `self` and `bookmark` of a resource in a collection.
pub fn of(base: &Base, collection: &str, id: &str) -> Value {
    json!([
        {"rel": "self", "href": format!("{}/v2.1/{collection}/{id}", base.0)},
        {"rel": "bookmark", "href": format!("{}/{collection}/{id}", base.0)},
    ])
}

/// The link to the page that begins after `last`.
pub fn next(base: &Base, path: &str, query: &Query, last: &str) -> Value {
    let query = query.with(&[("marker", last)]);
    json!([{"rel": "next", "href": format!("{}/v2.1/{path}?{query}", base.0)}])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_keeps_the_query_and_escapes_it() {
        let query = Query::parse("limit=1&name=a%20b&marker=old");
        let links = next(&Base("http://h/compute".into()), "flavors", &query, "x y");
        assert_eq!(
            links[0]["href"],
            "http://h/compute/v2.1/flavors?limit=1&name=a%20b&marker=x%20y"
        );
    }
}
