//! Lists of servers: conditions, order and marker composed from fixed pieces of SQL. User input
//! never becomes part of a statement.

use jiff::Timestamp;
use kilonova_store::{Tx, Value, params};

use super::statements::columns;
use super::{Server, read};
use crate::Error;

const COLUMNS: &str = columns!();

/// The servers that a list covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Which {
    /// Existing servers.
    #[default]
    Live,
    /// Deleted servers.
    Deleted,
    /// Both.
    Both,
    /// Deleted servers, and existing ones that are soft-deleted.
    Removed,
}

/// A condition on a column.
#[derive(Debug, Clone)]
pub enum Condition {
    /// The column equals the value.
    Is(&'static str, Value),
    /// The column, which is never null, differs from the value.
    IsNot(&'static str, Value),
    /// The time in the column is not before the value.
    AtLeast(&'static str, Timestamp),
    /// The time in the column is not after the value.
    AtMost(&'static str, Timestamp),
    /// The time in the column is between both values, inclusive.
    Between(&'static str, Timestamp, Timestamp),
    /// The column is one of the values.
    Among(&'static str, Vec<Value>),
    /// The lower-cased column contains the text.
    Contains(&'static str, String),
    /// The column is null, or not null.
    Null(&'static str, bool),
}

/// A sort key: an SQL expression, and the function that computes its value for a server.
#[derive(Clone, Copy)]
pub struct Key {
    /// The expression. Its value is never null.
    pub sql: &'static str,
    /// The same value, computed for a server.
    pub of: fn(&Server) -> Value,
    /// True if the largest comes first.
    pub descending: bool,
}

/// A list of servers.
#[derive(Clone, Default)]
pub struct Listing {
    /// The servers it covers.
    pub which: Which,
    /// Conditions, all of which must hold.
    pub conditions: Vec<Condition>,
    /// Sort keys, most significant first.
    pub order: Vec<Key>,
    /// True if servers with equal sort keys are sorted oldest first; false if newest first.
    pub oldest_first: bool,
}

impl Listing {
    /// The position of a server in the order, after which a page begins.
    pub fn place(&self, server: &Server) -> Vec<Value> {
        let keys = self.order.iter().map(|key| (key.of)(server));
        keys.chain([Value::Int(server.seq)]).collect()
    }
}

struct Text {
    sql: String,
    params: Vec<Value>,
}

impl Text {
    fn param(&mut self, value: Value) -> String {
        self.params.push(value);
        format!("?{}", self.params.len())
    }

    fn and(&mut self, condition: &Condition) {
        let sql = match condition {
            Condition::Is(column, value) => format!("{column} = {}", self.param(value.clone())),
            Condition::IsNot(column, value) => {
                format!("{column} <> {}", self.param(value.clone()))
            }
            Condition::AtLeast(column, least) => {
                format!("{column} >= {}", self.param((*least).into()))
            }
            Condition::AtMost(column, most) => {
                format!("{column} <= {}", self.param((*most).into()))
            }
            Condition::Between(column, least, most) => format!(
                "{column} BETWEEN {} AND {}",
                self.param((*least).into()),
                self.param((*most).into())
            ),
            Condition::Among(_, values) if values.is_empty() => "1 = 0".to_owned(),
            Condition::Among(column, values) => {
                let all: Vec<String> =
                    values.iter().map(|value| self.param(value.clone())).collect();
                format!("{column} IN ({})", all.join(", "))
            }
            Condition::Contains(column, text) => {
                let pattern = format!("%{}%", escaped(&text.to_lowercase()));
                format!("LOWER({column}) LIKE {} ESCAPE '\\'", self.param(pattern.into()))
            }
            Condition::Null(column, true) => format!("{column} IS NULL"),
            Condition::Null(column, false) => format!("{column} IS NOT NULL"),
        };
        self.sql.push_str(" AND ");
        self.sql.push_str(&sql);
    }

    /// Adds the condition for rows after a position: greater in the first key, or equal in it and
    /// greater in the next, and so on.
    fn after(&mut self, listing: &Listing, place: &[Value]) {
        let mut keys: Vec<(&str, bool)> =
            listing.order.iter().map(|key| (key.sql, key.descending)).collect();
        keys.push(("seq", !listing.oldest_first));
        let mut ways = Vec::new();
        for (index, (sql, descending)) in keys.iter().enumerate() {
            let mut way = Vec::new();
            for ((level, _), value) in keys.iter().zip(place).take(index) {
                way.push(format!("{level} = {}", self.param(value.clone())));
            }
            let Some(value) = place.get(index) else { continue };
            let sign = if *descending { "<" } else { ">" };
            way.push(format!("{sql} {sign} {}", self.param(value.clone())));
            ways.push(way.join(" AND "));
        }
        self.sql.push_str(&format!(" AND ({})", ways.join(" OR ")));
    }
}

/// Escapes the wildcards of LIKE.
fn escaped(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        if matches!(c, '%' | '_' | '\\') {
            out.push('\\');
        }
        out.push(c);
        out
    })
}

fn statement(listing: &Listing, after: Option<&[Value]>, limit: i64) -> Text {
    let from = match listing.which {
        Which::Live => format!("SELECT {COLUMNS}, CAST(NULL AS BIGINT) AS deleted_at FROM servers"),
        Which::Deleted => format!("SELECT {COLUMNS}, deleted_at FROM deleted_servers"),
        Which::Both => format!(
            "SELECT * FROM (SELECT {COLUMNS}, CAST(NULL AS BIGINT) AS deleted_at FROM servers
             UNION ALL SELECT {COLUMNS}, deleted_at FROM deleted_servers) both_kinds"
        ),
        // The state is a literal, so that the index of soft-deleted servers applies.
        Which::Removed => format!(
            "SELECT * FROM (SELECT {COLUMNS}, CAST(NULL AS BIGINT) AS deleted_at FROM servers
             WHERE vm_state = 'soft-delete'
             UNION ALL SELECT {COLUMNS}, deleted_at FROM deleted_servers) both_kinds"
        ),
    };
    let mut text = Text { sql: format!("{from} WHERE 1 = 1"), params: Vec::new() };
    for condition in &listing.conditions {
        text.and(condition);
    }
    if let Some(place) = after {
        text.after(listing, place);
    }
    let order: Vec<String> = listing
        .order
        .iter()
        .map(|key| format!("{} {}", key.sql, if key.descending { "DESC" } else { "ASC" }))
        .chain([if listing.oldest_first { "seq ASC" } else { "seq DESC" }.to_owned()])
        .collect();
    let limit = text.param(limit.into());
    text.sql.push_str(&format!(" ORDER BY {} LIMIT {limit}", order.join(", ")));
    text
}

/// Statements of example lists by name, for a test of their query plans.
pub fn examples() -> Vec<(String, String)> {
    let mut examples = Vec::new();
    for (kind, which) in [
        ("LIVE", Which::Live),
        ("DELETED", Which::Deleted),
        ("BOTH", Which::Both),
        ("REMOVED", Which::Removed),
    ] {
        let project = Condition::Is("project_id", Value::Null);
        for (whose, mut conditions) in [("ALL", Vec::new()), ("OF_PROJECT", vec![project])] {
            conditions.push(Condition::IsNot("vm_state", Value::Null));
            let listing = Listing { which, conditions, ..Listing::default() };
            let name = format!("{}::{kind}_{whose}", module_path!());
            let next = |listing: &Listing| statement(listing, Some(&[Value::Null]), 1).sql;
            examples.push((format!("{name}_NEXT"), next(&listing)));
            let oldest_first = Listing { oldest_first: true, ..listing.clone() };
            examples.push((format!("{name}_OLDEST_FIRST_NEXT"), next(&oldest_first)));
            examples.push((name, statement(&listing, None, 1).sql));
        }
    }
    examples
}

/// At most `limit` servers of a list after a position.
///
/// # Errors
/// Store errors only; also for all functions below.
pub fn rows(
    tx: &mut Tx<'_>,
    listing: &Listing,
    after: Option<&[Value]>,
    limit: i64,
) -> Result<Vec<Server>, Error> {
    let text = statement(listing, after, limit);
    let found = tx.rows(&text.sql, &text.params)?;
    found
        .iter()
        .map(|row| Ok(Server { deleted_at: row.time_opt("deleted_at")?, ..read(row)? }))
        .collect()
}

/// The marker of a page: a server, existing or deleted.
pub fn find(tx: &mut Tx<'_>, id: kilonova_ids::ServerId) -> Result<Option<Server>, Error> {
    let [id] = params![id];
    let listing = Listing {
        which: Which::Both,
        conditions: vec![Condition::Is("id", id.clone())],
        ..Listing::default()
    };
    Ok(rows(tx, &listing, None, 1)?.pop())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_input_is_a_parameter_and_its_wildcards_are_escaped() {
        let listing = Listing {
            which: Which::Live,
            conditions: vec![Condition::Contains("name", "a%'_\\".into())],
            order: vec![Key { sql: "name", of: |s| s.name.as_str().into(), descending: false }],
            oldest_first: false,
        };
        let place = [Value::from("m"), Value::Int(7)];
        let text = statement(&listing, Some(&place), 10);
        assert!(text.sql.contains("LOWER(name) LIKE ?1 ESCAPE '\\'"), "{}", text.sql);
        assert!(text.sql.contains("(name > ?2 OR name = ?3 AND seq < ?4)"), "{}", text.sql);
        assert!(text.sql.ends_with("ORDER BY name ASC, seq DESC LIMIT ?5"), "{}", text.sql);
        assert_eq!(text.params[0], Value::from("%a\\%'\\_\\\\%"));
        let listing = Listing { oldest_first: true, ..Listing::default() };
        let text = statement(&listing, Some(&[Value::Int(7)]), 10);
        assert!(text.sql.ends_with("AND (seq > ?1) ORDER BY seq ASC LIMIT ?2"), "{}", text.sql);
    }
}
