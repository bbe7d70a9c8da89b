//! The tables of the identity service.
//!
//! References end with what they refer to (`ON DELETE CASCADE`): an assignment or an application
//! credential never outlives its user, project or role.

use kilonova_store::Migration;

/// The schema, step by step.
pub const MIGRATIONS: &[Migration] = &[Migration {
    name: "identity-1-tables",
    sql: "
CREATE TABLE identity_projects (
    id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, description TEXT NOT NULL,
    enabled BIGINT NOT NULL, tags TEXT NOT NULL, extra TEXT NOT NULL);
CREATE TABLE identity_users (
    id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, enabled BIGINT NOT NULL,
    password_hash TEXT, default_project_id TEXT, tokens_valid_from BIGINT NOT NULL,
    extra TEXT NOT NULL);
CREATE TABLE identity_roles (
    id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, description TEXT);
CREATE TABLE identity_implied_roles (
    prior_id TEXT NOT NULL REFERENCES identity_roles(id) ON DELETE CASCADE,
    implied_id TEXT NOT NULL REFERENCES identity_roles(id) ON DELETE CASCADE,
    PRIMARY KEY (prior_id, implied_id));
CREATE TABLE identity_assignments (
    user_id TEXT NOT NULL REFERENCES identity_users(id) ON DELETE CASCADE,
    project_id TEXT NOT NULL REFERENCES identity_projects(id) ON DELETE CASCADE,
    role_id TEXT NOT NULL REFERENCES identity_roles(id) ON DELETE CASCADE,
    PRIMARY KEY (user_id, project_id, role_id));
CREATE INDEX identity_assignments_project ON identity_assignments (project_id);
CREATE INDEX identity_assignments_role ON identity_assignments (role_id);
CREATE TABLE identity_credentials (
    id TEXT PRIMARY KEY, name TEXT NOT NULL,
    user_id TEXT NOT NULL REFERENCES identity_users(id) ON DELETE CASCADE,
    project_id TEXT NOT NULL REFERENCES identity_projects(id) ON DELETE CASCADE,
    secret_hash TEXT NOT NULL, description TEXT, expires_at BIGINT,
    unrestricted BIGINT NOT NULL, UNIQUE (user_id, name));
CREATE INDEX identity_credentials_project ON identity_credentials (project_id);
CREATE TABLE identity_credential_roles (
    credential_id TEXT NOT NULL REFERENCES identity_credentials(id) ON DELETE CASCADE,
    role_id TEXT NOT NULL REFERENCES identity_roles(id) ON DELETE CASCADE,
    PRIMARY KEY (credential_id, role_id));
CREATE INDEX identity_credential_roles_role ON identity_credential_roles (role_id);
CREATE TABLE identity_revoked_tokens (
    audit_id TEXT PRIMARY KEY, expires_at BIGINT NOT NULL);
CREATE INDEX identity_revoked_tokens_expiry ON identity_revoked_tokens (expires_at);
",
}];
