//! The comparison: status, the headers that clients read, the names and types of the fields in a
//! body, every value except times and descriptions of boards, and the messages of errors.

use std::collections::BTreeSet;

use serde_json::Value;

use super::record::Answer;
use super::translate::Translation;

/// Returns the first difference.
pub fn compare(theirs: &Answer, ours: &Answer, ids: &Translation) -> Option<String> {
    if theirs.status != ours.status {
        return Some(format!("{} became {} {}", theirs.status, ours.status, ours.body));
    }
    headers(theirs, ours).or_else(|| match theirs.body.get("error_message") {
        Some(text) => sentence(text, &ours.body["error_message"], ids),
        None => value("", &theirs.body, &ours.body, ids),
    })
}

/// Cyborg omits its version headers if it did not route a request; ours always sends them.
fn headers(theirs: &Answer, ours: &Answer) -> Option<String> {
    for (name, value) in &theirs.headers {
        let other = ours.header(name);
        let same = match name.as_str() {
            "allow" => set(value) == set(other.unwrap_or_default()),
            "content-type" => other.is_some_and(|other| other.starts_with(value.as_str())),
            _ => other == Some(value),
        };
        if !same {
            return Some(format!("header {name}: {value} became {other:?}"));
        }
    }
    let typed = |answer: &Answer| answer.header("content-type").is_some();
    (typed(theirs) != typed(ours)).then(|| "only one answer has a content-type".to_owned())
}

fn set(methods: &str) -> BTreeSet<&str> {
    methods.split(',').map(str::trim).filter(|method| *method != "HEAD").collect()
}

/// Error messages without the tracebacks of Cyborg's conductor, and without webob's sentence for
/// browsers.
fn sentence(theirs: &Value, ours: &Value, ids: &Translation) -> Option<String> {
    let (theirs, ours) = (words(theirs.as_str()?), words(ours.as_str().unwrap_or_default()));
    let wanted: Vec<String> = theirs.iter().map(|text| ids.ours(text)).collect();
    (wanted != ours).then(|| format!("{wanted:?} became {ours:?}"))
}

fn words(text: &str) -> Vec<String> {
    let Ok(Value::Object(inner)) = serde_json::from_str(text) else {
        let mut parts = text.split("\n\n").map(str::trim).filter(|part| !part.is_empty());
        let first = parts.next().unwrap_or_default();
        return vec![first.to_owned(), parts.last().unwrap_or_default().to_owned()];
    };
    let text = |key: &str| inner.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let message = text("faultstring");
    vec![text("faultcode"), own_words(&message)]
}

fn value(at: &str, theirs: &Value, ours: &Value, ids: &Translation) -> Option<String> {
    let differ = || Some(format!("{at}: {theirs} became {ours}"));
    match (theirs, ours) {
        (Value::String(empty), Value::Null) if empty.is_empty() && at.is_empty() => None,
        (Value::Object(a), Value::Object(b)) => {
            if a.keys().collect::<BTreeSet<_>>() != b.keys().collect::<BTreeSet<_>>() {
                return differ();
            }
            a.iter().find_map(|(key, value_a)| value(key, value_a, &b[key], ids))
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).find_map(|(a, b)| value(at, a, b, ids))
        }
        (Value::String(a), Value::String(b)) => {
            let same = match at {
                "created_at" | "updated_at" => shape(a) == shape(b),
                "std_board_info" => serde_json::from_str::<Value>(b).is_ok_and(|b| b.is_object()),
                "vendor_board_info" => true,
                "description" if a.starts_with("Cyborg is") => true,
                _ => ids.ours(a) == *b,
            };
            if same { None } else { differ() }
        }
        (a, b) if a == b => None,
        _ => differ(),
    }
}

/// A time without its digits and without fractions of a second.
fn shape(time: &str) -> String {
    let whole = match time.split_once('.') {
        Some((whole, rest)) => format!("{whole}{}", rest.trim_start_matches(char::is_numeric)),
        None => time.to_owned(),
    };
    whole.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect()
}

/// The text before a traceback; the record abbreviates some tracebacks.
fn own_words(text: &str) -> String {
    let end = ["\nTraceback", "<traceback>"].iter().filter_map(|mark| text.find(mark)).min();
    text[..end.unwrap_or(text.len())].trim_end().to_owned()
}
