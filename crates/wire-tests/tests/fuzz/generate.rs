//! Bodies that a schema accepts or almost accepts: required fields and some optional ones, at their
//! bounds.

use serde_json::{Map, Value, json};

use crate::fuzz::identifiers::Identifiers;
use crate::fuzz::random::Rng;
use crate::fuzz::values;

/// A value for a schema; `key` is the name of its field.
pub fn value(rng: &mut Rng, pool: &Identifiers, schema: &Value, key: &str, depth: usize) -> Value {
    if depth > 10 {
        return Value::Null;
    }
    for all in ["oneOf", "anyOf", "allOf"] {
        if let Some(parts) = schema[all].as_array().filter(|parts| !parts.is_empty()) {
            let part = rng.pick(parts);
            let has_own = schema.get("type").is_some() && part.get("type").is_none();
            let mut merged = if has_own { schema.clone() } else { part.clone() };
            if let (Some(merged), Some(part)) = (merged.as_object_mut(), part.as_object()) {
                merged.remove(all);
                merged.extend(part.clone());
            }
            return value(rng, pool, &merged, key, depth + 1);
        }
    }
    if let Some(constant) = schema.get("const") {
        return constant.clone();
    }
    if let Some(all) = schema["enum"].as_array().filter(|all| !all.is_empty()) {
        return rng.pick(all).clone();
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) if !kinds.is_empty() => rng.pick(kinds).as_str().unwrap_or("null"),
        Value::String(kind) => kind,
        _ if schema.get("properties").is_some() => "object",
        _ => return values::any(rng),
    };
    match kind {
        "object" => object(rng, pool, schema, depth),
        "array" => array(rng, pool, schema, key, depth),
        "string" => json!(string(rng, pool, schema, key)),
        "integer" | "number" => json!(integer(rng, schema)),
        "boolean" => json!(rng.one_in(2)),
        _ => Value::Null,
    }
}

fn object(rng: &mut Rng, pool: &Identifiers, schema: &Value, depth: usize) -> Value {
    let mut map = Map::new();
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (key, inner) in schema["properties"].as_object().into_iter().flatten() {
        if required.contains(&key.as_str()) || rng.one_in(if rng.calm { 8 } else { 4 }) {
            map.insert(key.clone(), value(rng, pool, inner, key, depth + 1));
        }
    }
    let open = schema["patternProperties"].as_object().and_then(|all| all.values().next());
    let open = open.or_else(|| schema.get("additionalProperties").filter(|more| more.is_object()));
    if let Some(inner) = open {
        for _ in 0..rng.below(4) {
            let key = pool.some(rng, "keys");
            let grown = value(rng, pool, inner, &key, depth + 1);
            map.insert(key, grown);
        }
    }
    Value::Object(map)
}

fn array(rng: &mut Rng, pool: &Identifiers, schema: &Value, key: &str, depth: usize) -> Value {
    let least = number(schema, "minItems").unwrap_or(0).max(0);
    let most = number(schema, "maxItems").unwrap_or(3).clamp(least, least + 3);
    let span = usize::try_from(most - least + 1).unwrap_or(1);
    let count = usize::try_from(least).unwrap_or(0) + rng.below(span);
    let none = Value::Null;
    let inner = schema.get("items").unwrap_or(&none);
    (0..count).map(|_| value(rng, pool, inner, key, depth + 1)).collect()
}

fn number(schema: &Value, key: &str) -> Option<i64> {
    schema.get(key).and_then(|bound| bound.as_i64().or_else(|| bound.as_f64().map(|f| f as i64)))
}

fn integer(rng: &mut Rng, schema: &Value) -> i64 {
    let least = number(schema, "minimum").unwrap_or(0);
    let most = number(schema, "maximum").unwrap_or(least.saturating_add(1000));
    match if rng.calm { 9 } else { rng.below(8) } {
        0 => least,
        1 => most,
        2 => least.saturating_sub(1),
        3 => most.saturating_add(1),
        _ => least.saturating_add(i64::try_from(rng.below(4)).unwrap_or(0)).min(most),
    }
}

fn string(rng: &mut Rng, pool: &Identifiers, schema: &Value, key: &str) -> String {
    if let Some(there) = pool.there(rng, key).filter(|_| !rng.odd(8)) {
        return there;
    }
    let format = schema["format"].as_str().unwrap_or_default();
    let known = match format {
        "uuid" => "c0ffee00-0000-4000-8000-000000000000",
        "date-time" => "2026-01-01T00:00:00Z",
        "ipv4" => "192.0.2.1",
        "ipv6" => "2001:db8::1",
        "base64" => "Zm9v",
        "mac-address" => "52:54:00:00:00:01",
        "cidr" => "192.0.2.0/24",
        "uri" => "http://example.com/x",
        _ => "",
    };
    if !known.is_empty() && !rng.odd(6) {
        return known.to_owned();
    }
    let pattern = schema["pattern"].as_str().unwrap_or_default();
    if pattern.contains("/dev/") {
        return "/dev/vdb".to_owned();
    }
    if pattern.contains("[0-9]") {
        return integer(rng, schema).to_string();
    }
    let least = number(schema, "minLength").unwrap_or(0);
    let most = number(schema, "maxLength").unwrap_or(255);
    match if rng.calm { 10 } else { rng.below(10) } {
        0 => "m".repeat(usize::try_from(least).unwrap_or(0)),
        1 if most <= 65_536 => "m".repeat(usize::try_from(most).unwrap_or(0)),
        2 if most <= 65_536 => "m".repeat(usize::try_from(most + 1).unwrap_or(0)),
        3 => values::text(rng),
        _ => format!("n{}", rng.below(40)),
    }
}
