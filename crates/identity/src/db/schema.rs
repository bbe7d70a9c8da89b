//! The tables of the identity service.
//!
//! References cascade (`ON DELETE CASCADE`): an assignment, a membership, a trust or an application
//! credential never outlives its user, group, project or role.

use kilonova_store::Migration;

/// The schema migrations in order.
pub const MIGRATIONS: &[Migration] = &[
    Migration {
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
    },
    // `target` is `system`, `domain` or a project id. `name_key` is the name in lower case and unique.
    // If older roles differ only by case, one of them has the key and the others have NULL. The first
    // admin gets the system role that a new cloud grants at bootstrap.
    Migration {
        name: "identity-2-groups-trusts-catalog",
        sql: "
ALTER TABLE identity_roles ADD COLUMN immutable BIGINT NOT NULL DEFAULT 0;
ALTER TABLE identity_roles ADD COLUMN name_key TEXT;
UPDATE identity_roles SET immutable = 1
    WHERE name IN ('admin', 'manager', 'member', 'reader', 'service');
UPDATE identity_roles SET name_key = LOWER(name) WHERE NOT EXISTS (
    SELECT 1 FROM identity_roles other
    WHERE LOWER(other.name) = LOWER(identity_roles.name) AND other.id < identity_roles.id);
CREATE UNIQUE INDEX identity_roles_folded ON identity_roles (name_key);
ALTER TABLE identity_users ADD COLUMN options TEXT NOT NULL DEFAULT '{}';
CREATE TABLE identity_login_failures (
    user_id TEXT PRIMARY KEY REFERENCES identity_users(id) ON DELETE CASCADE,
    failures BIGINT NOT NULL, last_at BIGINT NOT NULL);
CREATE TABLE identity_groups (
    id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, description TEXT NOT NULL,
    extra TEXT NOT NULL);
CREATE TABLE identity_memberships (
    user_id TEXT NOT NULL REFERENCES identity_users(id) ON DELETE CASCADE,
    group_id TEXT NOT NULL REFERENCES identity_groups(id) ON DELETE CASCADE,
    PRIMARY KEY (user_id, group_id));
CREATE INDEX identity_memberships_group ON identity_memberships (group_id);
CREATE TABLE identity_user_grants (
    user_id TEXT NOT NULL REFERENCES identity_users(id) ON DELETE CASCADE,
    target TEXT NOT NULL,
    role_id TEXT NOT NULL REFERENCES identity_roles(id) ON DELETE CASCADE,
    PRIMARY KEY (user_id, target, role_id));
CREATE INDEX identity_user_grants_role ON identity_user_grants (role_id);
INSERT INTO identity_user_grants (user_id, target, role_id)
    SELECT a.user_id, 'system', a.role_id FROM identity_assignments a
    JOIN identity_users u ON u.id = a.user_id AND u.name = 'admin'
    JOIN identity_projects p ON p.id = a.project_id AND p.name = 'admin'
    JOIN identity_roles r ON r.id = a.role_id AND r.name = 'admin';
CREATE TABLE identity_group_grants (
    group_id TEXT NOT NULL REFERENCES identity_groups(id) ON DELETE CASCADE,
    target TEXT NOT NULL,
    project_id TEXT REFERENCES identity_projects(id) ON DELETE CASCADE,
    role_id TEXT NOT NULL REFERENCES identity_roles(id) ON DELETE CASCADE,
    PRIMARY KEY (group_id, target, role_id));
CREATE INDEX identity_group_grants_project ON identity_group_grants (project_id);
CREATE INDEX identity_group_grants_role ON identity_group_grants (role_id);
CREATE TABLE identity_trusts (
    id TEXT PRIMARY KEY,
    trustor_id TEXT NOT NULL REFERENCES identity_users(id) ON DELETE CASCADE,
    trustee_id TEXT NOT NULL REFERENCES identity_users(id) ON DELETE CASCADE,
    project_id TEXT REFERENCES identity_projects(id) ON DELETE CASCADE,
    parent_id TEXT REFERENCES identity_trusts(id) ON DELETE CASCADE,
    impersonation BIGINT NOT NULL, remaining_uses BIGINT, expires_at BIGINT,
    redelegation_count BIGINT NOT NULL, extra TEXT NOT NULL);
CREATE INDEX identity_trusts_trustor ON identity_trusts (trustor_id);
CREATE INDEX identity_trusts_trustee ON identity_trusts (trustee_id);
CREATE INDEX identity_trusts_project ON identity_trusts (project_id);
CREATE INDEX identity_trusts_parent ON identity_trusts (parent_id);
CREATE TABLE identity_trust_roles (
    trust_id TEXT NOT NULL REFERENCES identity_trusts(id) ON DELETE CASCADE,
    role_id TEXT NOT NULL REFERENCES identity_roles(id) ON DELETE CASCADE,
    PRIMARY KEY (trust_id, role_id));
CREATE INDEX identity_trust_roles_role ON identity_trust_roles (role_id);
CREATE TABLE identity_services (
    id TEXT PRIMARY KEY, type TEXT NOT NULL, name TEXT, description TEXT,
    enabled BIGINT NOT NULL, extra TEXT NOT NULL);
CREATE TABLE identity_regions (
    id TEXT PRIMARY KEY, description TEXT NOT NULL, parent_id TEXT, extra TEXT NOT NULL);
CREATE TABLE identity_endpoints (
    id TEXT PRIMARY KEY,
    service_id TEXT NOT NULL REFERENCES identity_services(id) ON DELETE CASCADE,
    interface TEXT NOT NULL, region_id TEXT, url TEXT NOT NULL, enabled BIGINT NOT NULL,
    extra TEXT NOT NULL);
CREATE INDEX identity_endpoints_service ON identity_endpoints (service_id);
CREATE INDEX identity_endpoints_region ON identity_endpoints (region_id);
",
    },
    // The keys are rows of `sealed_secrets`, under the same numbers.
    Migration {
        name: "identity-3-token-keys",
        sql: "
CREATE TABLE identity_token_keys (number BIGINT PRIMARY KEY, retired_at BIGINT);
",
    },
    // `region_id` is empty without a region. `target` is `domain` or a project's id. As in Keystone, limits outlive
    // their service and region.
    Migration {
        name: "identity-4-limits",
        sql: "
CREATE TABLE identity_registered_limits (
    id TEXT PRIMARY KEY, service_id TEXT NOT NULL, region_id TEXT NOT NULL,
    resource_name TEXT NOT NULL, default_limit BIGINT NOT NULL,
    description TEXT,
    UNIQUE (service_id, resource_name, region_id));
CREATE TABLE identity_limits (
    id TEXT PRIMARY KEY, target TEXT NOT NULL,
    project_id TEXT REFERENCES identity_projects(id) ON DELETE CASCADE,
    registered_id TEXT NOT NULL REFERENCES identity_registered_limits(id),
    resource_limit BIGINT NOT NULL, description TEXT,
    UNIQUE (target, registered_id));
CREATE INDEX identity_limits_project ON identity_limits (project_id);
CREATE INDEX identity_limits_registered ON identity_limits (registered_id);
",
    },
    // Credentials for other services. A sealed key encrypts their content.
    Migration {
        name: "identity-5-secrets",
        sql: "
CREATE TABLE identity_secrets (
    id TEXT PRIMARY KEY,
    user_id TEXT NOT NULL REFERENCES identity_users(id) ON DELETE CASCADE,
    project_id TEXT REFERENCES identity_projects(id) ON DELETE CASCADE,
    type TEXT NOT NULL, encrypted_blob TEXT NOT NULL, extra TEXT NOT NULL);
CREATE INDEX identity_secrets_user ON identity_secrets (user_id);
CREATE INDEX identity_secrets_project ON identity_secrets (project_id);
",
    },
    Migration {
        name: "identity-6-immutable-projects",
        sql: "
ALTER TABLE identity_projects ADD COLUMN immutable BIGINT NOT NULL DEFAULT 0;
",
    },
    // A domain without a row has the default description.
    Migration {
        name: "identity-7-domains",
        sql: "
CREATE TABLE identity_domains (id TEXT PRIMARY KEY, description TEXT NOT NULL);
",
    },
    // For the deletion of a project. A migration changes no rows that controllers of the previous version use, so users
    // keep the ids of projects that such a controller has deleted.
    Migration {
        name: "identity-8-default-projects",
        sql: "
CREATE INDEX identity_users_default_project ON identity_users (default_project_id);
",
    },
    Migration {
        name: "identity-9-role-attributes",
        sql: "
ALTER TABLE identity_roles ADD COLUMN extra TEXT NOT NULL DEFAULT '{}';
",
    },
];
