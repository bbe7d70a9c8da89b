//! The text of statements that take a list of values or several rows, by the number of values or rows.
//!
//! In a statement, `({})` is a list, and `({}, {}, {})` is a row that may be repeated. Only a few numbers are used,
//! because a connection prepares each text once and keeps the result. This module must never run a statement.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use crate::Value;

/// The possible numbers of rows in one statement, largest first.
const ROWS_PER_STATEMENT: [usize; 5] = [32, 8, 4, 2, 1];

/// The number of values in a short list; the last value is repeated to fill it.
const SHORT_LIST: usize = 8;
/// The numbers of values in longer lists, for statements with many values, largest first.
const LONG_LISTS: [usize; 2] = [256, 64];

/// Texts by their statement and number of values or rows.
type Texts = HashMap<(&'static str, usize), Arc<str>>;

/// The texts built so far.
static TEXTS: LazyLock<RwLock<Texts>> = LazyLock::new(RwLock::default);

/// The text of a statement for a number of values or rows: `({})` becomes `(?1, ?2, ?3)`, and
/// `({}, {})` becomes `(?1, ?2), (?3, ?4), (?5, ?6)`.
pub fn listed(sql: &str, number: usize) -> String {
    let Some((before, row, after)) = place(sql) else { return sql.to_owned() };
    let width = row.matches("{}").count();
    let group = |first: usize, count: usize| {
        let places: Vec<String> = (first..first + count).map(|at| format!("?{at}")).collect();
        format!("({})", places.join(", "))
    };
    if width == 1 {
        let list = group(1, number);
        return sql.replace("({})", &list);
    }
    let rows: Vec<String> = (0..number).map(|row| group(row * width + 1, width)).collect();
    format!("{before}{}{after}", rows.join(", "))
}

/// The first list or row of a statement, with the text before and after it.
fn place(sql: &str) -> Option<(&str, &str, &str)> {
    let begin = sql.find("({}")?;
    let (before, rest) = sql.split_at_checked(begin)?;
    let (row, after) = rest.split_at_checked(rest.find(')')? + 1)?;
    Some((before, row, after))
}

/// Like [`listed`], but cached.
fn text(sql: &'static str, number: usize) -> Arc<str> {
    let key = (sql, number);
    if let Some(text) = TEXTS.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
        return Arc::clone(text);
    }
    let text: Arc<str> = listed(sql, number).into();
    TEXTS.write().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::clone(&text));
    text
}

/// The statements for some rows, each with its parameters.
pub(crate) fn of_rows<'a, const WIDTH: usize>(
    sql: &'static str,
    rows: &'a [[Value; WIDTH]],
) -> Vec<(Arc<str>, &'a [Value])> {
    let (mut rest, mut statements) = (rows, Vec::new());
    for size in ROWS_PER_STATEMENT {
        while let Some((some, others)) = rest.split_at_checked(size) {
            statements.push((text(sql, size), some.as_flattened()));
            rest = others;
        }
    }
    statements
}

/// The statements for a list of values, each with its parameters: as many full long lists as possible, and short ones
/// for the rest.
pub(crate) fn of_list(sql: &'static str, values: &[Value]) -> Vec<(Arc<str>, Vec<Value>)> {
    let fill = |some: &[Value]| {
        let mut list = some.to_vec();
        list.resize(SHORT_LIST, some.last().cloned().unwrap_or(Value::Null));
        (text(sql, SHORT_LIST), list)
    };
    let (mut rest, mut statements) = (values, Vec::new());
    for size in LONG_LISTS {
        while let Some((some, others)) = rest.split_at_checked(size) {
            statements.push((text(sql, size), some.to_vec()));
            rest = others;
        }
    }
    statements.extend(rest.chunks(SHORT_LIST).map(fill));
    statements
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSERT: &str = "INSERT INTO t (a, b) VALUES ({}, {}) ON CONFLICT (a) DO NOTHING";

    #[test]
    fn lists_and_rows_are_expanded() {
        assert_eq!(listed("SELECT a FROM t", 3), "SELECT a FROM t");
        assert_eq!(
            listed("SELECT a FROM t WHERE a IN ({}) OR b IN ({})", 2),
            "SELECT a FROM t WHERE a IN (?1, ?2) OR b IN (?1, ?2)"
        );
        assert_eq!(
            listed(INSERT, 2),
            "INSERT INTO t (a, b) VALUES (?1, ?2), (?3, ?4) ON CONFLICT (a) DO NOTHING"
        );
    }

    #[test]
    fn rows_take_few_statements() {
        let rows: Vec<[Value; 2]> = (0..43).map(|n: i64| [n.into(), (2 * n).into()]).collect();
        let statements = of_rows(INSERT, &rows);
        let sizes: Vec<usize> = statements.iter().map(|(_, params)| params.len() / 2).collect();
        assert_eq!(sizes, [32, 8, 2, 1]);
        let all: Vec<&Value> = statements.into_iter().flat_map(|(_, params)| params).collect();
        assert_eq!(all, rows.as_flattened().iter().collect::<Vec<_>>());
        assert!(of_rows(INSERT, &rows[..0]).is_empty());
    }

    #[test]
    fn a_list_is_filled_with_its_last_value() {
        let values: Vec<Value> = (0..10).map(|n: i64| n.into()).collect();
        let statements = of_list("SELECT a FROM t WHERE a IN ({})", &values);
        assert!(statements.iter().all(|(sql, _)| sql.ends_with("?7, ?8)")), "{statements:?}");
        let last: Vec<_> = statements.iter().map(|(_, params)| params.last().cloned()).collect();
        assert_eq!(last, [Some(Value::Int(7)), Some(Value::Int(9))]);
        let values: Vec<Value> = (0..393).map(|n: i64| n.into()).collect();
        let statements = of_list("SELECT a FROM t WHERE a IN ({})", &values);
        let sizes: Vec<usize> = statements.iter().map(|(_, params)| params.len()).collect();
        assert_eq!(sizes, [256, 64, 64, 8, 8]);
        assert!(statements[0].0.ends_with("?255, ?256)"), "{statements:?}");
        assert!(of_list("SELECT a FROM t WHERE a IN ({})", &[]).is_empty());
    }
}
