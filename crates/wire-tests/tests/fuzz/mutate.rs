//! Mutations of bodies: as values, and as bytes.

use serde_json::Value;

use crate::fuzz::random::Rng;
use crate::fuzz::values;

/// Mutates one part of a value.
pub fn value(rng: &mut Rng, whole: &mut Value) {
    let count = nodes(whole);
    let at = rng.below(count);
    if let Some(node) = nth(whole, &mut { at }) {
        change(rng, node);
    }
}

pub fn nodes(value: &Value) -> usize {
    1 + match value {
        Value::Object(map) => map.values().map(nodes).sum(),
        Value::Array(items) => items.iter().map(nodes).sum(),
        _ => 0,
    }
}

/// The n-th value, outermost first.
pub fn nth<'a>(value: &'a mut Value, n: &mut usize) -> Option<&'a mut Value> {
    if *n == 0 {
        return Some(value);
    }
    *n -= 1;
    match value {
        Value::Object(map) => map.values_mut().find_map(|inner| step(inner, n)),
        Value::Array(items) => items.iter_mut().find_map(|inner| step(inner, n)),
        _ => None,
    }
}

fn step<'a>(inner: &'a mut Value, n: &mut usize) -> Option<&'a mut Value> {
    let size = nodes(inner);
    if *n < size {
        return nth(inner, n);
    }
    *n -= size;
    None
}

fn change(rng: &mut Rng, node: &mut Value) {
    match node {
        Value::Object(map) if !map.is_empty() && rng.one_in(2) => {
            let key = map.keys().nth(rng.below(map.len())).cloned().unwrap_or_default();
            let value = map.get(&key).cloned().unwrap_or_default();
            match rng.below(4) {
                0 => drop(map.remove(&key)),
                1 => drop(map.insert(values::text(rng), value)),
                2 => {
                    map.remove(&key);
                    map.insert(values::text(rng), value);
                }
                _ => drop(map.insert(key.to_uppercase(), values::any(rng))),
            }
        }
        Value::Array(items) if rng.one_in(2) => match rng.below(3) {
            0 => items.push(values::any(rng)),
            1 => drop(items.pop()),
            _ => {
                let copies = *rng.pick(&[1, 2, 60, 300]);
                let more: Vec<Value> = items.iter().cycle().take(copies).cloned().collect();
                items.extend(more);
            }
        },
        Value::String(text) if rng.one_in(3) => match rng.below(5) {
            0 => text.push_str(&values::text(rng)),
            1 => text.insert_str(0, &values::text(rng)),
            2 => drop(text.pop()),
            3 => *text = text.to_uppercase(),
            _ => *text = text.repeat(3),
        },
        Value::Number(number) if rng.one_in(3) => *node = Value::String(number.to_string()),
        _ => *node = values::any(rng),
    }
}

/// Mutates a text so that it may not be JSON any more.
pub fn bytes(rng: &mut Rng, body: &mut Vec<u8>) {
    let at = rng.below(body.len() + 1);
    let near = |body: &[u8], byte: u8| body.iter().position(|b| *b == byte);
    match rng.below(14) {
        0 => body.truncate(at),
        1 => drop(body.splice(at..at, [0xff, 0xfe])),
        2 => drop(body.splice(at..at, *b"\0")),
        3 => drop(body.splice(at..at, b"\\u0000".to_owned())),
        4 => drop(body.splice(at..at, b"\\ud800".to_owned())),
        5 => body.extend_from_slice(b" {}"),
        6 => drop(body.splice(0..0, [0xef, 0xbb, 0xbf])),
        7 => *body = deep(rng),
        8 => duplicate(body),
        9 => {
            if let Some(at) = near(body, b':') {
                let odd: [&[u8]; 6] = [
                    b"NaN",
                    b"Infinity",
                    b"1e999",
                    b"-0",
                    b"01",
                    b"123456789012345678901234567890",
                ];
                let end = body[at..].iter().position(|b| matches!(b, b',' | b'}'));
                let end = end.map_or(body.len(), |end| at + end);
                body.splice(at + 1..end, rng.pick(&odd).iter().copied());
            }
        }
        10 => body.iter_mut().for_each(|byte| {
            if *byte == b'"' {
                *byte = b'\'';
            }
        }),
        11 if !body.is_empty() => {
            let at = rng.below(body.len());
            body[at] ^= 1 << rng.below(8);
        }
        12 => body.clear(),
        _ => {
            let utf16: Vec<u8> =
                String::from_utf8_lossy(body).encode_utf16().flat_map(u16::to_le_bytes).collect();
            *body = utf16;
        }
    }
}

fn deep(rng: &mut Rng) -> Vec<u8> {
    let depth = *rng.pick(&[127, 128, 129, 5000, 100_000]);
    let one: &[u8] = if rng.one_in(2) { b"[" } else { b"{\"a\":" };
    one.repeat(depth)
}

/// Repeats the first field.
fn duplicate(body: &mut Vec<u8>) {
    let Some(open) = body.iter().position(|byte| *byte == b'{') else { return };
    let Some(colon) = body[open..].iter().position(|byte| *byte == b':') else { return };
    let mut again = body[open + 1..open + colon].to_vec();
    again.extend_from_slice(b": null,");
    body.splice(open + 1..open + 1, again);
}
