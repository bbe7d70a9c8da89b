//! Ids differ between the two services: ids at the same place correspond to each other.

use serde_json::Value;
use uuid::Uuid;

/// Our base URL.
pub const OURS: &str = "cloud:8780";
const THEIRS: &str = "127.0.0.1:16666";

/// Pairs of their ids and ours.
#[derive(Debug, Default)]
pub struct Translation(Vec<(String, String)>);

fn is_id(text: &str) -> bool {
    text.len() == 36 && Uuid::parse_str(text).is_ok()
}

impl Translation {
    /// Records the ids that correspond in two responses to the same request.
    pub fn learn(&mut self, theirs: &Value, ours: &Value) {
        match (theirs, ours) {
            (Value::Object(theirs), Value::Object(ours)) => {
                for (key, value) in theirs {
                    if let Some(other) = ours.get(key) {
                        self.learn(value, other);
                    }
                }
            }
            (Value::Array(theirs), Value::Array(ours)) => {
                theirs.iter().zip(ours).for_each(|(a, b)| self.learn(a, b));
            }
            (Value::String(theirs), Value::String(ours)) if is_id(theirs) && is_id(ours) => {
                let known = self.0.iter().any(|(have, _)| have == theirs);
                if !known && theirs != ours {
                    self.0.push((theirs.clone(), ours.clone()));
                }
            }
            _ => {}
        }
    }

    /// Replaces their ids in a text by ours.
    pub fn ours(&self, text: &str) -> String {
        let text = text.replace(THEIRS, OURS);
        self.0.iter().fold(text, |text, (theirs, ours)| text.replace(theirs, ours))
    }
}
