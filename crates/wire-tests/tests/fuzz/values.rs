//! Unexpected values.

use serde_json::{Value, json};

use crate::fuzz::random::Rng;

const TEXTS: &[&str] = &[
    "",
    " ",
    "\t",
    "x",
    "-1",
    "0",
    "1",
    "1e3",
    "0x10",
    "١٢٣",
    "NaN",
    "Infinity",
    "-Infinity",
    "null",
    "true",
    "None",
    "undefined",
    "(",
    "[",
    "*",
    "+?",
    "(a+)+$",
    "(?P<x>",
    "\\",
    "\\1",
    "%",
    "%s%n",
    "_",
    "'",
    "\"",
    "' OR 1=1 --",
    "?1",
    "$1",
    ";",
    "../../etc/passwd",
    "/",
    "//",
    "a/b",
    ".",
    "..",
    "a\nb",
    "a\r\nX-Evil: 1",
    "\u{7}",
    "\u{1b}[31m",
    "\u{7f}",
    "\u{85}",
    "\u{feff}x",
    "\u{202e}abc",
    "e\u{301}",
    "\u{200b}",
    "ﬁ",
    "İ",
    "ß",
    "💥",
    "\u{10ffff}",
    "\u{fffd}",
    "\u{d7ff}",
    "2020-01-01",
    "2020-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999Z",
    "0000-00-00T00:00:00Z",
    "2020-02-30T25:61:61Z",
    "-9999-01-01T00:00:00",
    "2020-01-01T00:00:00+99:99",
    "::1",
    "1.2.3.4",
    "999.1.1.1",
    "localhost",
    "nova",
    "nova:h1",
    "nova:h1:h1",
    ":",
    "::",
    "in:a,b",
    "in:",
    "in:,",
    ",",
    "!CUSTOM_X",
    "CUSTOM_X",
    "VCPU:1",
    "VCPU:0",
    "VCPU:-1",
    "VCPU:99999999999999999999",
    "MEMORY_MB:1,VCPU:1",
    "admin",
    "latest",
    "2.1",
    "auto",
    "none",
    "c0ffee00-0000-4000-8000-000000000000",
    "C0FFEE00000040008000000000000000",
    "{c0ffee00-0000-4000-8000-000000000000}",
    "urn:uuid:c0ffee00-0000-4000-8000-000000000000",
    "<in> a",
    "<or> a <or> b",
    ">= 5",
    "s== x",
    "{\"a\": [",
    "#!/bin/sh",
    "Zm9v",
    "Zm9=",
    "a:b:c",
    "1",
    "09",
    "1_000",
];

pub fn text(rng: &mut Rng) -> String {
    match rng.below(24) {
        0 => "x".repeat(*rng.pick(&[63, 64, 65, 255, 256, 257, 1024])),
        1 => "é".repeat(*rng.pick(&[127, 128, 255, 256])),
        2 => "9".repeat(*rng.pick(&[9, 10, 11, 19, 20, 40, 400])),
        3 if rng.one_in(8) => "A".repeat(*rng.pick(&[65_535, 65_536, 90_000])),
        4 => {
            let length = rng.below(12);
            (0..length)
                .filter_map(|_| char::from_u32(u32::try_from(rng.below(0x3000)).ok()?))
                .collect()
        }
        _ => (*rng.pick(TEXTS)).to_owned(),
    }
}

pub fn number(rng: &mut Rng) -> Value {
    match rng.below(16) {
        0 => json!(0),
        1 => json!(-1),
        2 => json!(1),
        3 => json!(i32::MAX),
        4 => json!(i64::from(i32::MAX) + 1),
        5 => json!(i64::MAX),
        6 => json!(i64::MIN),
        7 => json!(u64::MAX),
        8 => json!(0.5),
        9 => json!(1e300),
        10 => json!(-0.0),
        11 => json!(5e-324),
        12 => json!(1.0),
        13 => json!(9_007_199_254_740_993_i64),
        _ => json!(rng.below(70_000)),
    }
}

pub fn any(rng: &mut Rng) -> Value {
    match rng.below(12) {
        0 => Value::Null,
        1 => json!(rng.one_in(2)),
        2 | 3 => number(rng),
        4 => json!([]),
        5 => json!({}),
        6 => json!([any_flat(rng), any_flat(rng)]),
        7 => {
            let mut map = serde_json::Map::new();
            map.insert(text(rng), any_flat(rng));
            Value::Object(map)
        }
        8 if rng.one_in(4) => deep(rng),
        _ => json!(text(rng)),
    }
}

fn any_flat(rng: &mut Rng) -> Value {
    if rng.one_in(2) { number(rng) } else { json!(text(rng)) }
}

/// Nested lists or objects.
fn deep(rng: &mut Rng) -> Value {
    let mut value = json!(1);
    let as_lists = rng.one_in(2);
    for _ in 0..*rng.pick(&[3, 20, 100, 120]) {
        value = if as_lists { json!([value]) } else { json!({"a": value}) };
    }
    value
}
