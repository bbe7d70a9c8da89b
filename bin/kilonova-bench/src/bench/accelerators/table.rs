//! The figures of one server, as text and as JSON.

use serde_json::{Value, json};

/// One figure.
pub struct Row {
    /// Its name.
    pub what: String,
    /// The share of the server.
    pub server: f64,
    /// The share of its database and its message queue.
    pub services: f64,
    /// The unit of both.
    pub unit: &'static str,
    /// The upper bound for the server's share.
    pub aim: Option<f64>,
}

/// All figures of one server.
pub struct Table {
    title: String,
    rows: Vec<Row>,
}

impl Table {
    /// A table without rows.
    pub fn new(title: String) -> Self {
        Self { title, rows: Vec::new() }
    }

    /// Adds rows.
    pub fn extend(&mut self, rows: impl IntoIterator<Item = Row>) {
        self.rows.extend(rows);
    }

    /// As one JSON value.
    pub fn json(&self) -> Value {
        let row = |row: &Row| {
            let Row { what, server, services, unit, aim } = row;
            json!({"what": what, "server": server, "services": services, "unit": unit, "aim": aim})
        };
        json!({"title": self.title, "rows": self.rows.iter().map(row).collect::<Vec<_>>()})
    }

    /// As text, each row with the same figure of `other`.
    pub fn lines(&self, other: Option<&Self>) -> String {
        let mut text = format!(
            "{}\n  {:54} {:>10} {:>10}  {:14} {:>6}  {:>12} {:>8}\n",
            self.title, "", "server", "database", "", "aim", "upstream", "ratio"
        );
        for row in &self.rows {
            let Row { what, server, services, unit, aim } = row;
            let aim = aim.map_or_else(String::new, |aim| format!("{aim}"));
            let theirs = other.filter(|other| other.title != self.title);
            let theirs = theirs.and_then(|other| other.rows.iter().find(|one| one.what == *what));
            let beside = theirs.map_or_else(String::new, |theirs| {
                let (all, mine) = (theirs.server + theirs.services, server + services);
                format!("{all:12.1} {:7.0}x", all / mine)
            });
            let line =
                format!("  {what:54} {server:10.3} {services:10.3}  {unit:14} {aim:>6}  {beside}");
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// The median.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}
