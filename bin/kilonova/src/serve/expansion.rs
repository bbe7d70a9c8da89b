//! The rule of rolling upgrades: a migration that is not named as contracting changes nothing that
//! the previous version of the program reads or writes.

use kilonova_store::Migration;

use super::migrations;

/// Exempt migrations: no two versions of the program have shared a database across them.
const EXEMPT: &[&str] = &["identity-2-groups-trusts-catalog", "network-2-external"];

/// Keys that the previous version cannot violate: each contains the columns of an older key.
const SUBSUMED_KEYS: &[&str] = &["CREATE UNIQUE INDEX HOSTS_BY_EPOCH ON HOSTS ( HOST , EPOCH )"];

/// The reasons why the previous version could not work after the statements; empty if it can.
fn problems(sql: &str) -> Vec<String> {
    let created_tables: Vec<String> = statements(sql).filter_map(|words| created(&words)).collect();
    statements(sql).filter_map(|words| problem(&words, &created_tables)).collect()
}

/// The words of each statement, in capitals.
fn statements(sql: &str) -> impl Iterator<Item = Vec<String>> {
    sql.split(';').filter_map(|statement| {
        let text: Vec<&str> =
            statement.lines().filter_map(|line| line.split("--").next()).collect();
        let text = text.join(" ").to_uppercase().replace('(', " ( ").replace(')', " ) ");
        let words: Vec<String> =
            text.replace(',', " , ").split_whitespace().map(str::to_owned).collect();
        (!words.is_empty()).then_some(words)
    })
}

fn starts(words: &[String], with: &[&str]) -> bool {
    words.len() >= with.len() && words.iter().zip(with).all(|(word, with)| word == with)
}

/// The table that a statement creates.
fn created(words: &[String]) -> Option<String> {
    let name = if has(words, &["IF", "NOT", "EXISTS"]) { 5 } else { 2 };
    starts(words, &["CREATE", "TABLE"]).then(|| words.get(name).cloned()).flatten()
}

fn has(words: &[String], several: &[&str]) -> bool {
    words.windows(several.len()).any(|window| starts(window, several))
}

fn problem(words: &[String], created_tables: &[String]) -> Option<String> {
    let is_new = |at: usize| words.get(at).is_some_and(|table| created_tables.contains(table));
    let text = words.join(" ");
    let refuse = |why: &str| Some(format!("{why}: {text}"));
    if starts(words, &["CREATE", "TABLE"]) || starts(words, &["CREATE", "INDEX"]) {
        return None;
    }
    if starts(words, &["CREATE", "UNIQUE", "INDEX"]) {
        let on = words.iter().position(|word| word == "ON").map_or(0, |at| at + 1);
        let holds = is_new(on) || SUBSUMED_KEYS.contains(&text.as_str());
        return if holds { None } else { refuse("the previous version may violate the key") };
    }
    if starts(words, &["INSERT", "INTO"]) || words.first().is_some_and(|word| word == "UPDATE") {
        let table = if words.first().is_some_and(|word| word == "UPDATE") { 1 } else { 2 };
        return if is_new(table) { None } else { refuse("rows of the previous version change") };
    }
    if starts(words, &["ALTER", "TABLE"]) {
        if is_new(2) {
            return None;
        }
        let column = words.get(3..5).is_some_and(|add| starts(add, &["ADD", "COLUMN"]));
        if !column {
            return refuse("a table of the previous version changes");
        }
        if has(words, &["NOT", "NULL"]) && !has(words, &["DEFAULT"]) {
            return refuse("the previous version does not fill the column");
        }
        if ["UNIQUE", "CHECK", "PRIMARY"].iter().any(|word| has(words, &[word])) {
            return refuse("the previous version may violate the constraint");
        }
        return None;
    }
    refuse("the statement is not known to expand the schema")
}

#[test]
fn migrations_expand_the_schema_unless_their_names_say_otherwise() {
    let all = migrations();
    let expanding = |one: &&Migration| !Migration::contracts(one.name);
    let mut wrong = Vec::new();
    for one in all.iter().filter(expanding).filter(|one| !EXEMPT.contains(&one.name)) {
        wrong.extend(problems(one.sql).into_iter().map(|why| format!("{}: {why}", one.name)));
    }
    assert!(
        wrong.is_empty(),
        "the previous version cannot run with these; name them SERVICE-NUMBER-contract-… and ship \
         them one version later:\n{}",
        wrong.join("\n")
    );
    for name in EXEMPT {
        let one = all.iter().find(|one| one.name == *name).expect("the migration exists");
        assert_ne!(problems(one.sql), Vec::<String>::new(), "{name} needs no exemption");
    }
}

#[test]
fn a_contracting_migration_is_known_by_its_name() {
    assert!(Migration::contracts("compute-0600-contract-moves"));
    assert!(!Migration::contracts("compute-0600-contracted-moves"));
}

#[test]
fn statements_that_break_the_previous_version_are_found() {
    for good in [
        "CREATE TABLE a (b TEXT NOT NULL, UNIQUE (b)); CREATE UNIQUE INDEX c ON a (b)",
        "CREATE TABLE a (b TEXT); INSERT INTO a (b) VALUES ('x'); UPDATE a SET b = 'y';",
        "CREATE INDEX i ON t (c) -- drop nothing\n;",
        "ALTER TABLE t ADD COLUMN c TEXT; ALTER TABLE t ADD COLUMN d BIGINT NOT NULL DEFAULT 0",
        "alter table t add column c TEXT REFERENCES u (id)",
    ] {
        assert_eq!(problems(good), Vec::<String>::new(), "{good}");
    }
    for bad in [
        "DROP TABLE t",
        "DROP INDEX i",
        "ALTER TABLE t DROP COLUMN c",
        "ALTER TABLE t RENAME TO u",
        "ALTER TABLE t RENAME COLUMN c TO d",
        "ALTER TABLE t ALTER COLUMN c SET NOT NULL",
        "ALTER TABLE t ADD CONSTRAINT k UNIQUE (c)",
        "ALTER TABLE t ADD COLUMN c BIGINT NOT NULL",
        "ALTER TABLE t ADD COLUMN c BIGINT UNIQUE",
        "CREATE UNIQUE INDEX i ON t (c)",
        "UPDATE t SET c = 1",
        "DELETE FROM t",
        "INSERT INTO t (c) VALUES (1)",
        "TRUNCATE t",
        "CREATE TRIGGER x AFTER INSERT ON t EXECUTE FUNCTION f()",
    ] {
        assert_eq!(problems(bad).len(), 1, "{bad}");
    }
}
