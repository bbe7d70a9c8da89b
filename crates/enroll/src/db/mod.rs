//! The SQL of enrollment.

pub(crate) mod authorities;
pub(crate) mod authority;
pub(crate) mod certificates;
pub(crate) mod tokens;
pub(crate) mod trust;

use kilonova_store::Migration;

/// The schema migrations.
pub const MIGRATIONS: &[Migration] = &[TABLES, NAMES, AUTHORITIES];

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

/// The cloud's authorities are rows, and each certificate names its authority: existing certificates
/// name the first one. At most one authority is in each state except `retired`.
const AUTHORITIES: Migration = Migration {
    name: "enroll-3-authorities",
    sql: "
CREATE TABLE enroll_authorities (
    number BIGINT PRIMARY KEY, fingerprint TEXT NOT NULL UNIQUE, certificate TEXT NOT NULL,
    state TEXT NOT NULL, made_at BIGINT NOT NULL, trusted_until BIGINT
);
CREATE UNIQUE INDEX enroll_authorities_state ON enroll_authorities (state) WHERE state <> 'retired';
CREATE TABLE enroll_trust (host TEXT PRIMARY KEY, mark TEXT NOT NULL, at BIGINT NOT NULL);
ALTER TABLE enroll_certificates ADD COLUMN authority BIGINT NOT NULL DEFAULT 1;
",
};

/// All statements of this crate, for tests that prepare them on each database.
pub fn statements() -> Vec<&'static [(&'static str, &'static str)]> {
    vec![
        authorities::STATEMENTS,
        authority::STATEMENTS,
        certificates::STATEMENTS,
        tokens::STATEMENTS,
        trust::STATEMENTS,
    ]
}
