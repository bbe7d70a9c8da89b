//! One page of a service's list.

use kilonova_wire::query::{Query, escaped};
use serde_json::Value;

use super::viewer::Viewer;
use crate::app::Dashboard;
use crate::error::Error;

/// Number of rows on a page.
const PAGE: usize = 50;

/// A page of a list.
pub(crate) struct Rows {
    /// Its rows.
    pub rows: Vec<Value>,
    /// The row after which it begins; empty for the first page.
    pub marker: String,
    /// True if another page follows.
    pub more: bool,
}

impl Rows {
    /// Reads the page that a query requests. `path` is the list's path at its service, with or without a query.
    pub(super) async fn read(
        dashboard: &Dashboard,
        viewer: &Viewer,
        path: &str,
        key: &str,
        query: &Query,
    ) -> Result<Self, Error> {
        let marker = query.get("marker").unwrap_or_default().to_owned();
        let mut path = path.to_owned();
        path.push(if path.contains('?') { '&' } else { '?' });
        path.push_str(&format!("limit={}", PAGE + 1));
        if !marker.is_empty() {
            path.push_str(&format!("&marker={}", escaped(&marker)));
        }
        let mut body = dashboard.0.cloud.get(&viewer.caller, &path).await?;
        let mut rows = elements(&mut body[key])?;
        let more = rows.len() > PAGE;
        rows.truncate(PAGE);
        Ok(Self { rows, marker, more })
    }

    /// Cuts the page out of a list that its service sends as a whole.
    pub(super) fn cut(all: Vec<Value>, query: &Query, id: fn(&Value) -> &str) -> Self {
        let marker = query.get("marker").unwrap_or_default().to_owned();
        // If the marker's row is gone, this is the first page.
        let begin = all.iter().position(|row| id(row) == marker).map_or(0, |at| at + 1);
        let more = all.len() > begin + PAGE;
        Self { rows: all.into_iter().skip(begin).take(PAGE).collect(), marker, more }
    }
}

/// The elements of a list in an answer.
pub(super) fn elements(list: &mut Value) -> Result<Vec<Value>, Error> {
    match list.take() {
        Value::Array(found) => Ok(found),
        _ => Err(Error::Defect("a list in a service's answer is not an array".into())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_whole_list_is_cut_into_pages() {
        let all: Vec<Value> = (0..120).map(|at| json!({"id": format!("{at}")})).collect();
        let cut = |query: &str| {
            Rows::cut(all.clone(), &Query::parse(query), |row| {
                row["id"].as_str().unwrap_or_default()
            })
        };
        let (first, last) = (cut(""), cut("marker=99"));
        assert_eq!((first.rows.len(), first.more), (50, true));
        assert_eq!((last.rows.len(), last.more), (20, false));
        assert_eq!(cut("marker=49").rows[0]["id"], "50");
        assert_eq!(cut("marker=gone").rows[0]["id"], "0");
    }
}
