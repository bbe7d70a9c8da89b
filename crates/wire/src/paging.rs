//! Parses `limit` and `marker` as Nova and Glance do.

use crate::Refusal;
use crate::query::Query;

/// Maximum number of rows in one answer (Nova's `[api] max_limit`).
pub const MAX_LIMIT: usize = 1000;

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Maximum number of rows on the page.
    pub limit: usize,
    /// The id of the last row on the previous page.
    pub marker: Option<String>,
}

impl Page {
    /// Parses the two parameters.
    ///
    /// # Errors
    /// 400 for a limit that is negative or not an integer.
    pub fn read(query: &Query) -> Result<Self, Refusal> {
        let limit = match query.get("limit") {
            None | Some("") => MAX_LIMIT,
            Some(text) => text
                .parse::<usize>()
                .map_err(|_| {
                    Refusal::bad_request(format!(
                        "Invalid input for query parameters limit. Value: {text}. limit must be a \
                         non-negative integer."
                    ))
                })?
                .min(MAX_LIMIT),
        };
        Ok(Self { limit, marker: query.get("marker").map(str::to_owned) })
    }

    /// Cuts `rows` to the page; the flag is true if more rows follow. Returns `None` for an unknown marker.
    pub fn cut<T>(&self, rows: Vec<T>, id: impl Fn(&T) -> String) -> Option<(Vec<T>, bool)> {
        let start = match &self.marker {
            None => 0,
            Some(marker) => rows.iter().position(|row| id(row) == *marker)? + 1,
        };
        let more = rows.len() - start > self.limit;
        Some((rows.into_iter().skip(start).take(self.limit).collect(), more))
    }
}
