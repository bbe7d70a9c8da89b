//! The operations in the sources of the routes: `route("/path", get(..).post(..))`.

use std::collections::BTreeSet;
use std::path::Path;

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

/// Method and route of each operation; `collection` and `route` are equivalent here.
pub fn operations() -> BTreeSet<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/api");
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).expect("the sources exist") {
        let text = std::fs::read_to_string(entry.expect("the directory is readable").path())
            .expect("the file is text");
        for begin in ["route(", "collection("] {
            for call in text.split(begin).skip(1) {
                found.extend(read(call));
            }
        }
    }
    found
}

/// The arguments of `route(`: a quoted path, a comma, and methods up to the closing bracket.
fn read(call: &str) -> Vec<(String, String)> {
    let Some(rest) = call.trim_start().strip_prefix('"') else { return Vec::new() };
    let Some((path, rest)) = rest.split_once('"') else { return Vec::new() };
    let mut depth = 1;
    let end = rest.find(|c| {
        depth += match c {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        depth == 0
    });
    let methods = &rest[..end.unwrap_or(rest.len())];
    let calls = |method: &&&str| {
        methods
            .match_indices(&format!("{method}("))
            .any(|(at, _)| !methods[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
    };
    METHODS.iter().filter(calls).map(|method| (method.to_uppercase(), path.to_owned())).collect()
}
