//! HTTP stays in `api/` and SQL stays in `db/`, in every service crate. A refusal below `api/` is a
//! typed error; a statement is a named constant in `db/`, and a function there runs it.

use crate::source::{File, Sources};

/// Crates that serve an API over tables of their own.
const SERVICES: &[&str] = &[
    "accelerator",
    "compute",
    "compute-app",
    "compute-nodes",
    "compute-scheduler",
    "enroll",
    "identity",
    "image",
    "network",
    "placement",
    "seal",
];

/// Identifiers of HTTP in code. `Fault` of `wire` is the form of a refusal in HTTP.
const HTTP: &[&str] = &["StatusCode", "axum::", "http::", "HeaderMap", "HeaderValue"];

/// True for an import of `Fault` from `wire`.
fn imports_fault(line: &str) -> bool {
    line.contains("kilonova_wire::")
        && line.split(|c: char| !c.is_alphanumeric()).any(|word| word == "Fault")
}

/// The beginnings of statements.
const SQL: &[&str] = &["SELECT ", "INSERT INTO ", "UPDATE ", "DELETE FROM ", "WITH "];

/// The calls that run a statement.
const RUNS: &[&str] = &["tx.execute(", "tx.rows(", "tx.row("];

/// Folders whose purpose is HTTP: the API itself, and clients of other services.
const SPEAKS_HTTP: &[&str] = &["api/", "nova/"];

/// HTTP outside the folders whose purpose it is.
pub fn http(sources: &Sources) -> Vec<String> {
    findings(sources, SPEAKS_HTTP, |line| {
        if imports_fault(line) {
            return Some("Fault below api/; use Refusal".to_owned());
        }
        HTTP.iter().find(|word| line.contains(**word)).map(|word| format!("{word} below api/"))
    })
}

/// SQL, and calls that run it, outside `db/`.
pub fn sql(sources: &Sources) -> Vec<String> {
    findings(sources, &["db/"], |line| {
        if let Some(call) = RUNS.iter().find(|call| line.contains(**call)) {
            return Some(format!("{call}…) outside db/"));
        }
        let literal = line.split_once('"').map(|(_, literal)| literal.trim_start())?;
        SQL.iter()
            .any(|word| literal.starts_with(word))
            .then(|| "a statement outside db/".to_owned())
    })
}

fn findings(
    sources: &Sources,
    allowed: &[&str],
    rule: impl Fn(&str) -> Option<String>,
) -> Vec<String> {
    let mut found = Vec::new();
    for file in sources.rust().filter(|file| applies(file, allowed)) {
        for (number, line) in file.released() {
            let code = line.trim_start();
            if code.starts_with("//") {
                continue;
            }
            if let Some(finding) = rule(code) {
                found.push(format!("{}:{number}: {finding}", file.path));
            }
        }
    }
    found
}

fn applies(file: &File, allowed: &[&str]) -> bool {
    let service = file.package().is_some_and(|package| SERVICES.contains(&package));
    let inner = file.in_src();
    service && inner.is_some_and(|inner| !allowed.iter().any(|folder| inside(inner, folder)))
}

/// True for a file in the folder, at any depth, and for the folder's own `NAME.rs`.
fn inside(inner: &str, folder: &str) -> bool {
    let file = format!("{}.rs", folder.trim_end_matches('/'));
    inner.starts_with(folder) || inner.contains(&format!("/{folder}")) || inner == file
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(path: &str, text: &str) -> Sources {
        Sources::of(vec![File { path: path.to_owned(), text: text.to_owned() }])
    }

    #[test]
    fn a_status_below_the_api_is_found() {
        let text = "use axum::http::StatusCode;\n";
        assert_eq!(http(&one("crates/image/src/app/data.rs", text)).len(), 1);
        assert_eq!(http(&one("crates/image/src/api/data.rs", text)).len(), 0);
        assert_eq!(http(&one("crates/wire/src/fault.rs", text)).len(), 0);
        let text = "use kilonova_wire::{Context, Fault};\n";
        assert_eq!(http(&one("crates/network/src/app/rules.rs", text)).len(), 1);
    }

    #[test]
    fn a_statement_outside_the_database_folder_is_found() {
        let text = "    let rows = tx.rows(ALL, params![])?;\n";
        assert_eq!(sql(&one("crates/network/src/ledger/show.rs", text)).len(), 1);
        assert_eq!(sql(&one("crates/network/src/db/ports.rs", text)).len(), 0);
        let text = "    ALL = \"SELECT id FROM ports\";\n";
        assert_eq!(sql(&one("crates/network/src/ledger/show.rs", text)).len(), 1);
    }

    #[test]
    fn comments_and_tests_may_name_both() {
        let text = "// StatusCode\n#[cfg(test)]\nmod tests { use axum::http::StatusCode; }\n";
        assert_eq!(http(&one("crates/image/src/app/data.rs", text)).len(), 0);
    }
}
