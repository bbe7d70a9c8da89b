//! Links in answers: to a resource and to the next page of a list.

use axum::extract::FromRequestParts;
use http::request::Parts;
use kilonova_wire::Refusal;
use kilonova_wire::query::Query;
use serde_json::{Value, json};

use super::in_project::InProject;

/// The prefix of links: the URL at which the caller reached the service, followed by the project if
/// the path of the request contained one.
#[derive(Debug, Clone)]
pub struct Base {
    root: String,
    /// Empty, or a slash and the project's id.
    project: String,
}

impl Base {
    /// The prefix of versioned links.
    pub fn versioned(&self) -> String {
        format!("{}/v2.1{}", self.root, self.project)
    }

    /// The prefix of bookmarks, which have no version.
    pub fn unversioned(&self) -> String {
        format!("{}{}", self.root, self.project)
    }

    /// The base URL that all services of this program share.
    pub fn cloud(&self) -> &str {
        self.root.strip_suffix("/compute").unwrap_or(&self.root)
    }
}

impl<S: Sync> FromRequestParts<S> for Base {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let kilonova_wire::Base(root) =
            kilonova_wire::Base::from_request_parts(parts, state).await?;
        let project = parts.extensions.get::<InProject>();
        let project = project.map(|InProject(id)| format!("/{id}")).unwrap_or_default();
        Ok(Self { root, project })
    }
}

/// The links `self` and `bookmark` of a resource in a collection.
pub fn of(base: &Base, collection: &str, id: &str) -> Value {
    json!([
        {"rel": "self", "href": format!("{}/{collection}/{id}", base.versioned())},
        {"rel": "bookmark", "href": format!("{}/{collection}/{id}", base.unversioned())},
    ])
}

/// The link to the page that begins after `last`.
pub fn next(base: &Base, path: &str, query: &Query, last: &str) -> Value {
    let query = query.with(&[("marker", last)]);
    json!([{"rel": "next", "href": format!("{}/{path}?{query}", base.versioned())}])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_keeps_the_query_and_escapes_it() {
        let query = Query::parse("limit=1&name=a%20b&marker=old");
        let base = Base { root: "http://h/compute".into(), project: "/abc".into() };
        let links = next(&base, "flavors", &query, "x y");
        assert_eq!(
            links[0]["href"],
            "http://h/compute/v2.1/abc/flavors?limit=1&name=a%20b&marker=x%20y"
        );
    }
}
