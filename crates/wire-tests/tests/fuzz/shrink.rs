//! Minimizes a request with a wrong response.

use axum::Router;
use kilonova_wire_tests::Document;
use serde_json::{Value, json};

use crate::fuzz::compose::Sent;
use crate::fuzz::mutate::{nodes, nth};
use crate::fuzz::verdict::send;

/// Maximum number of requests spent on one fault.
const ATTEMPTS: usize = 400;

/// The smallest request found; `None` if the same request now has a correct response.
pub async fn shrunk(
    router: &Router,
    document: &Document,
    sent: &Sent,
    status: u16,
) -> Option<Sent> {
    let mut attempts = 0;
    let mut is_wrong = async |one: &Sent| {
        attempts += 1;
        let answer = send(router, document, one).await;
        attempts <= ATTEMPTS && answer.is_some_and(|a| a.wrong.is_some() && a.status == status)
    };
    if !is_wrong(sent).await {
        return None;
    }
    let mut best = sent.clone();
    loop {
        let before = best.clone();
        for smaller in smaller(&best) {
            if is_wrong(&smaller).await {
                best = smaller;
                break;
            }
        }
        if best == before {
            return Some(best);
        }
    }
}

/// Every variant with one part removed.
fn smaller(sent: &Sent) -> Vec<Sent> {
    let mut all = Vec::new();
    for at in 0..sent.headers.len() {
        let mut less = sent.clone();
        less.headers.remove(at);
        all.push(less);
    }
    if let Some((path, query)) = sent.uri.split_once('?') {
        let pairs: Vec<&str> = query.split('&').collect();
        for at in 0..pairs.len() {
            let mut left = pairs.clone();
            left.remove(at);
            let query =
                if left.is_empty() { String::new() } else { format!("?{}", left.join("&")) };
            all.push(Sent { uri: format!("{path}{query}"), ..sent.clone() });
        }
    }
    if let Some(body) = sent.json() {
        for less in bodies(&body) {
            all.push(Sent { body: less.to_string().into_bytes(), ..sent.clone() });
        }
    }
    if !sent.body.is_empty() {
        all.push(Sent { body: Vec::new(), ..sent.clone() });
    }
    all
}

fn bodies(body: &Value) -> Vec<Value> {
    let mut all = Vec::new();
    for at in 0..nodes(body).min(200) {
        let mut put = |change: &dyn Fn(&mut Value)| {
            let mut less = body.clone();
            if let Some(node) = nth(&mut less, &mut { at }) {
                change(node);
            }
            if less.to_string().len() < body.to_string().len() {
                all.push(less);
            }
        };
        let inner = nth(&mut body.clone(), &mut { at }).map_or(0, |node| match node {
            Value::Object(map) => map.len(),
            Value::Array(items) => items.len(),
            _ => 0,
        });
        for index in 0..inner.min(30) {
            put(&|node| match node {
                Value::Object(map) => {
                    if let Some(key) = map.keys().nth(index).cloned() {
                        map.remove(&key);
                    }
                }
                Value::Array(items) if index < items.len() => drop(items.remove(index)),
                _ => {}
            });
        }
        put(&|node| {
            if let Value::String(text) = node {
                *text = text.chars().take(text.chars().count() / 2).collect();
            }
        });
        put(&|node| {
            if node.is_array() || node.is_object() {
                *node = json!(null);
            }
        });
    }
    all
}
