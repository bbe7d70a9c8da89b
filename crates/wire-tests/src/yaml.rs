//! Parses the subset of YAML that OpenAPI documents use into JSON values: no aliases, no tags,
//! string keys only.

use saphyr_parser::{Event, Parser, ScalarStyle, StrInput};
use serde_json::{Map, Number, Value};

/// Parses the first document of a text.
///
/// # Errors
/// The error, with its line.
pub fn read(text: &str) -> Result<Value, String> {
    let mut events = Events(Parser::new_from_str(text));
    loop {
        match events.next()? {
            Event::DocumentStart(_) => {
                let first = events.next()?;
                return events.value(first);
            }
            Event::StreamEnd => return Ok(Value::Null),
            _ => {}
        }
    }
}

struct Events<'a>(Parser<'a, StrInput<'a>>);

impl<'a> Events<'a> {
    fn next(&mut self) -> Result<Event<'a>, String> {
        match self.0.next_event() {
            Some(Ok((event, _))) => Ok(event),
            Some(Err(error)) => Err(error.to_string()),
            None => Ok(Event::StreamEnd),
        }
    }

    fn value(&mut self, event: Event<'a>) -> Result<Value, String> {
        match event {
            Event::Scalar(text, ScalarStyle::Plain, ..) => Ok(plain(&text)),
            Event::Scalar(text, ..) => Ok(Value::String(text.into_owned())),
            Event::SequenceStart(..) => {
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        Event::SequenceEnd => return Ok(Value::Array(items)),
                        item => items.push(self.value(item)?),
                    }
                }
            }
            Event::MappingStart(..) => {
                let mut map = Map::new();
                loop {
                    let key = match self.next()? {
                        Event::MappingEnd => return Ok(Value::Object(map)),
                        Event::Scalar(text, ..) => text.into_owned(),
                        other => return Err(format!("{other:?} is not a key")),
                    };
                    let value = self.next()?;
                    map.insert(key, self.value(value)?);
                }
            }
            other => Err(format!("{other:?} is not a value")),
        }
    }
}

fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" => return Value::Null,
        "true" => return Value::Bool(true),
        "false" => return Value::Bool(false),
        _ => {}
    }
    if let Ok(number) = text.parse::<i64>() {
        return number.into();
    }
    let numeric = text.starts_with(|c: char| c.is_ascii_digit() || c == '-')
        && text.contains('.')
        && text.bytes().all(|b| b"0123456789.-+e".contains(&b));
    let real = text.parse().ok().filter(|_| numeric).and_then(Number::from_f64);
    real.map_or_else(|| text.into(), Value::Number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn scalars_are_what_json_has() {
        let text = "a: [1, 2.5, 3e+2, 3.5e+2, '1', true, null, x-1]\nb:\n  c: |-\n    two\n    lines\n  '2': {}\n";
        let want = json!({
            "a": [1, 2.5, "3e+2", 350.0, "1", true, null, "x-1"], "b": {"c": "two\nlines", "2": {}},
        });
        assert_eq!(super::read(text), Ok(want));
    }

    #[test]
    fn invalid_yaml_is_refused() {
        assert!(super::read("a: [1").is_err());
        assert!(super::read("a: *b").is_err());
    }
}
