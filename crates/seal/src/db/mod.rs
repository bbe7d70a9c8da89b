//! The SQL of sealed secrets.

pub(crate) mod current;
pub(crate) mod secrets;

use kilonova_store::Migration;

/// The schema migrations.
pub const MIGRATIONS: &[Migration] = &[Migration {
    name: "seal-1-secrets",
    sql: "
CREATE TABLE seal_current (one BIGINT PRIMARY KEY, key_id TEXT NOT NULL);
CREATE TABLE sealed_secrets (
    kind TEXT NOT NULL, number BIGINT NOT NULL, sealed TEXT NOT NULL, made_at BIGINT NOT NULL,
    PRIMARY KEY (kind, number));
",
}];

/// All statements of this crate, for tests that prepare them on each database.
pub fn statements() -> Vec<&'static [(&'static str, &'static str)]> {
    vec![current::STATEMENTS, secrets::STATEMENTS]
}
