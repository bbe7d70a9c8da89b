//! Ids differ between the two services: those that stand at the same place mean the same thing.

use serde_json::Value;
use uuid::Uuid;

/// How ours is reached.
pub const OURS: &str = "cloud:8780";
const THEIRS: &str = "127.0.0.1:16666";

/// Their ids in ours.
#[derive(Debug, Default)]
pub struct Translation(Vec<(String, String)>);

fn is_id(text: &str) -> bool {
    text.len() == 36 && Uuid::parse_str(text).is_ok()
}

impl Translation {
    /// Takes in the ids of two answers to one question.
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

    /// A text of theirs with our ids.
    pub fn ours(&self, text: &str) -> String {
        let text = text.replace(THEIRS, OURS);
        self.0.iter().fold(text, |text, (theirs, ours)| text.replace(theirs, ours))
    }
}
