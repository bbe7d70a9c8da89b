//! The SQL of enrollment.

pub(crate) mod authority;
pub(crate) mod certificates;
pub(crate) mod tokens;

use kilonova_store::Migration;

/// The schema migrations.
pub const MIGRATIONS: &[Migration] = &[TABLES, NAMES];

const TABLES: Migration = Migration {
    name: "enroll-1-tables",
    sql: "
CREATE TABLE enroll_authority (one BIGINT PRIMARY KEY, fingerprint TEXT NOT NULL);
CREATE TABLE enroll_tokens (
    hash TEXT NOT NULL PRIMARY KEY, host TEXT, made_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL, used_at BIGINT, used_by TEXT
);
CREATE TABLE enroll_certificates (
    serial TEXT NOT NULL PRIMARY KEY, host TEXT NOT NULL, addresses TEXT NOT NULL,
    made_at BIGINT NOT NULL, expires_at BIGINT NOT NULL, revoked_at BIGINT
);
CREATE INDEX enroll_certificates_host ON enroll_certificates (host);
",
};

/// Host names are case-insensitive; a token may allow its host to replace another machine.
const NAMES: Migration = Migration {
    name: "enroll-2-names",
    sql: "
CREATE INDEX enroll_certificates_name ON enroll_certificates (LOWER(host));
CREATE INDEX enroll_certificates_end ON enroll_certificates (expires_at);
ALTER TABLE enroll_tokens ADD COLUMN replaces BIGINT NOT NULL DEFAULT 0;
",
};

/// All statements of this crate, for tests that prepare them on each database.
pub fn statements() -> Vec<&'static [(&'static str, &'static str)]> {
    vec![authority::STATEMENTS, certificates::STATEMENTS, tokens::STATEMENTS]
}
