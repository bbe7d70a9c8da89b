//! Paths with existing or odd identifiers, and query strings with known keys.

use crate::fuzz::identifiers::Identifiers;
use crate::fuzz::random::Rng;
use crate::fuzz::seeds::KEYS;
use crate::fuzz::values;

pub fn uri(
    rng: &mut Rng,
    pool: &Identifiers,
    route: &str,
    method: &str,
    known: &[String],
) -> (String, String) {
    let mut path = String::new();
    let mut before = "";
    for part in route.split('/').skip(1) {
        path.push('/');
        match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
            Some(word) => {
                let word = if pool.all(word).is_empty() || word == "id" { before } else { word };
                let id = pool.some(rng, word);
                path.push_str(&escaped(rng, &id));
            }
            None => path.push_str(part),
        }
        before = part;
    }
    let mut query = String::new();
    let count = if method == "GET" { rng.below(5) } else { usize::from(rng.odd(10)) };
    for at in 0..count {
        let key = match rng.below(4) {
            0 | 1 if !known.is_empty() => rng.pick(known).clone(),
            0..=2 => (*rng.pick(KEYS)).to_owned(),
            _ => values::text(rng),
        };
        let value = match key.as_str() {
            "limit" => {
                (*rng.pick(&["0", "1", "2", "1000", "-1", "99999999999999999999", "x", ""])).into()
            }
            "sort_key" | "sort" => (*rng.pick(KEYS)).to_owned(),
            "sort_dir" => (*rng.pick(&["asc", "desc", "up", ""])).to_owned(),
            _ => pool.some(rng, &key),
        };
        query.push(if at == 0 { '?' } else { '&' });
        query.push_str(&escaped(rng, &key));
        query.push('=');
        query.push_str(&escaped(rng, &value));
    }
    (path, query)
}

/// Percent-encoded, sometimes incorrectly.
fn escaped(rng: &mut Rng, text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes().take(4000) {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    if rng.odd(40) {
        out.push_str(rng.word(&[
            "%00",
            "%",
            "%zz",
            "%ff",
            "%c3%28",
            "%2F",
            "%0a",
            "+",
            "%ed%a0%80",
        ]));
    }
    out
}
