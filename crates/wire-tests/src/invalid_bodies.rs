//! Invalid bodies, derived from a valid one and its schema: each field is missing, of every other
//! type, empty, too long or out of bounds, or an additional field is present.

use serde_json::{Map, Value, json};

/// A body and its changed field.
#[derive(Debug, Clone)]
pub struct Wrong {
    /// The body.
    pub body: Value,
    /// The name that the error message must contain.
    pub field: String,
    /// A description for messages.
    pub how: String,
}

/// The name of a field that no schema has.
pub const UNKNOWN: &str = "kilonova_unknown";

/// Values of every type, at and beyond the bounds in schemas.
fn values() -> Vec<Value> {
    vec![
        Value::Null,
        json!(true),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(0x8000_0000_u32),
        json!(u64::MAX),
        json!(1e300),
        json!(""),
        json!(" "),
        json!("x\u{7}y"),
        json!("é\u{202e}💥"),
        json!("x".repeat(256)),
        json!("x".repeat(65_536)),
        json!("-1"),
        json!("9".repeat(30)),
        json!([]),
        json!([null]),
        json!([{}]),
        json!(["x", "x"]),
        json!({}),
        json!({UNKNOWN: {"y": []}}),
    ]
}

/// Every invalid body that differs from a valid one by one change.
pub fn all(right: &Value, schema: &Value) -> Vec<Wrong> {
    let mut found = Vec::new();
    for value in values() {
        found.push(Wrong {
            how: format!("body = {}", brief(&value)),
            body: value,
            field: String::new(),
        });
    }
    walk(right, schema, &mut Vec::new(), right, &mut found);
    found
}

fn walk(at: &Value, schema: &Value, path: &mut Vec<String>, whole: &Value, found: &mut Vec<Wrong>) {
    match at {
        Value::Object(map) => {
            let mut more = map.clone();
            more.insert(UNKNOWN.into(), json!(1));
            let open = schema["additionalProperties"].is_object();
            let field = if open { "" } else { UNKNOWN };
            push(found, whole, path, Some(Value::Object(more)), field, "one more".into());
            for key in map.keys() {
                let mut less = map.clone();
                less.remove(key);
                push(found, whole, path, Some(Value::Object(less)), key, "missing".into());
            }
            for (key, value) in fields(map, schema) {
                let inner = part(schema, &key);
                for wrong in values() {
                    let mut changed = map.clone();
                    let how = brief(&wrong);
                    changed.insert(key.clone(), wrong);
                    push(found, whole, path, Some(Value::Object(changed)), &key, how);
                }
                if let Some(value) = value {
                    path.push(key);
                    walk(&value, &inner, path, whole, found);
                    path.pop();
                }
            }
        }
        Value::Array(items) => {
            let inner = schema.get("items").cloned().unwrap_or(Value::Null);
            let field = path.last().cloned().unwrap_or_default();
            for wrong in values() {
                let how = brief(&wrong);
                let changed = items.iter().cloned().chain([wrong]).collect();
                push(found, whole, path, Some(Value::Array(changed)), &field, how);
            }
            if let Some(first) = items.first() {
                path.push("0".into());
                walk(first, &inner, path, whole, found);
                path.pop();
            }
        }
        _ => {}
    }
}

/// The fields of a valid object, and the other fields of its schema.
fn fields(map: &Map<String, Value>, schema: &Value) -> Vec<(String, Option<Value>)> {
    let mut all: Vec<(String, Option<Value>)> =
        map.iter().map(|(key, value)| (key.clone(), Some(value.clone()))).collect();
    for key in schema["properties"].as_object().into_iter().flat_map(Map::keys) {
        if !map.contains_key(key) {
            all.push((key.clone(), None));
        }
    }
    all
}

fn part(schema: &Value, key: &str) -> Value {
    schema["properties"].get(key).cloned().unwrap_or(Value::Null)
}

fn push(
    found: &mut Vec<Wrong>,
    whole: &Value,
    path: &[String],
    value: Option<Value>,
    field: &str,
    how: String,
) {
    let mut body = whole.clone();
    let pointer: String = path.iter().map(|part| format!("/{part}")).collect();
    if let (Some(place), Some(value)) = (body.pointer_mut(&pointer), value) {
        *place = value;
        found.push(Wrong {
            body,
            field: field.to_owned(),
            how: format!("{pointer}/{field}: {how}"),
        });
    }
}

fn brief(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 40 {
        text
    } else {
        format!("{}…", text.chars().take(40).collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_is_left_out_and_changed() {
        let schema = json!({"properties": {"a": {"properties": {"b": {}, "c": {}}}}});
        let all = all(&json!({"a": {"b": [1]}}), &schema);
        let has = |field: &str, body: Value| {
            all.iter().any(|wrong| wrong.field == field && wrong.body == body)
        };
        assert!(has("a", json!({})));
        assert!(has("b", json!({"a": {}})));
        assert!(has("b", json!({"a": {"b": null}})));
        assert!(has("c", json!({"a": {"b": [1], "c": true}})));
        assert!(has("b", json!({"a": {"b": [1, null]}})));
        assert!(has(UNKNOWN, json!({"a": {"b": [1], UNKNOWN: 1}})));
    }
}
