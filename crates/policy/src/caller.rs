//! The caller and the target of an operation.

/// Attributes of a caller that rules may name before the colon. Each upstream service provides a
/// slightly different set; this is the union.
pub const ATTRIBUTES: [&str; 19] = [
    "user_id",
    "user",
    "project_id",
    "tenant_id",
    "tenant",
    "roles",
    "service_roles",
    "system_scope",
    "domain_id",
    "user_domain_id",
    "project_domain_id",
    "token.user.id",
    "token.user.domain.id",
    "token.domain.id",
    "token.project.id",
    "token.project.domain.id",
    "is_admin",
    "is_admin_project",
    "is_public_api",
];

/// The scope of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scope {
    /// One project, or unscoped.
    #[default]
    Project,
    /// One domain.
    Domain,
    /// The whole cloud.
    System,
}

/// The caller as rules see it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Credentials<'a> {
    /// User id.
    pub user_id: &'a str,
    /// Project id; empty without project scope.
    pub project_id: &'a str,
    /// Domain id; empty without domain scope.
    pub domain_id: &'a str,
    /// Role names.
    pub roles: &'a [String],
    /// Role names of the service token, if one was sent.
    pub service_roles: &'a [String],
    /// The scope of the token.
    pub scope: Scope,
    /// The domain of the user.
    pub user_domain_id: &'a str,
    /// The domain of the project; empty without project scope.
    pub project_domain_id: &'a str,
}

impl Credentials<'_> {
    /// True if the caller has the role; case-insensitive.
    pub(crate) fn has_role(&self, name: &str) -> bool {
        let same = |role: &String| match role.is_ascii() && name.is_ascii() {
            true => role.eq_ignore_ascii_case(name),
            false => role.to_lowercase() == name.to_lowercase(),
        };
        self.roles.iter().any(same)
    }

    /// True if an attribute equals or contains the value. An absent attribute matches nothing.
    pub(crate) fn has(&self, attribute: &str, value: &str) -> bool {
        let one = |have: &str| !have.is_empty() && have == value;
        match attribute {
            "user_id" | "user" | "token.user.id" => one(self.user_id),
            "project_id" | "tenant_id" | "tenant" | "token.project.id" => one(self.project_id),
            "domain_id" => one(self.domain_id) || (self.domain_id.is_empty() && value == "None"),
            "token.domain.id" => one(self.domain_id),
            "user_domain_id" | "token.user.domain.id" => one(self.user_domain_id),
            "project_domain_id" | "token.project.domain.id" => one(self.project_domain_id),
            "roles" => self.roles.iter().any(|role| role == value),
            "service_roles" => self.service_roles.iter().any(|role| role == value),
            "system_scope" => self.scope == Scope::System && value == "all",
            "is_admin_project" => value == "True",
            _ => false,
        }
    }
}

/// The object of the operation: the values for `%(name)s`. A check that needs a missing name fails.
pub type Target<'a> = &'a [(&'a str, &'a str)];
