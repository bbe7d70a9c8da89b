//! The record: one exchange per line.

use std::path::PathBuf;

use serde_json::Value;

/// Overrides the location of the record.
const VARIABLE: &str = "KILONOVA_CYBORG_GOLDEN";

/// A response of either side. Header names are in lower case.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Value,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(have, _)| have == name).map(|(_, value)| value.as_str())
    }
}

/// A request and Cyborg's response.
#[derive(Debug, Clone)]
pub struct Exchange {
    pub line: usize,
    pub note: String,
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    /// Empty if there is none.
    pub body: String,
    pub answer: Answer,
}

impl std::fmt::Display for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {} ({}) {} {}", self.line, self.note, self.method, self.path)
    }
}

fn pairs(value: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    value.as_object().into_iter().flatten().map(|(k, v)| (k.to_lowercase(), text(v))).collect()
}

impl Exchange {
    fn parse(line: usize, value: &Value) -> Option<Self> {
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        Some(Self {
            line,
            note: text("note")?,
            method: text("method")?,
            path: text("path")?,
            headers: pairs(&value["req_headers"]),
            body: match &value["req"] {
                Value::Null => String::new(),
                Value::String(raw) => raw.clone(),
                json => json.to_string(),
            },
            answer: Answer {
                status: value["status"].as_u64()? as u16,
                headers: pairs(&value["resp_headers"]),
                body: value["resp"].clone(),
            },
        })
    }

    /// A request that is not in the record.
    pub fn by_admin(method: &str, path: &str, body: &Value) -> Self {
        let headers = [("x-user-id", "u1"), ("x-project-id", "a"), ("x-roles", "admin")];
        Self {
            line: 0,
            note: String::new(),
            method: method.into(),
            path: path.into(),
            headers: headers.map(|(name, value)| (name.into(), value.into())).to_vec(),
            body: body.to_string(),
            answer: Answer { status: 0, headers: Vec::new(), body: Value::Null },
        }
    }
}

/// Returns all exchanges. Without a record, skips the test and returns `None`.
pub fn read() -> Option<Vec<Exchange>> {
    let path = std::env::var_os(VARIABLE).map_or_else(
        || {
            PathBuf::from(env!("CARGO_MANIFEST_DIR"))
                .join("../../../shared/peers/cyborg/wire-golden-17.0.0.jsonl")
        },
        PathBuf::from,
    );
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            let lines = text.lines().enumerate();
            let parse = |(at, line): (usize, &str)| {
                Exchange::parse(
                    at + 1,
                    &serde_json::from_str(line).expect("the line is valid JSON"),
                )
            };
            Some(lines.filter_map(parse).collect())
        }
        Err(error) => {
            let path = path.display();
            kilonova_testkit::skip(format!("no record at {path} ({error}); {VARIABLE} names one"));
            None
        }
    }
}
