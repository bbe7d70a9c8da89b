//! The identity behind a request: user, project and roles.

use axum::extract::FromRequestParts;
use http::request::Parts;
use kilonova_ids::RequestId;

use crate::Refusal;

/// A user's token, marked as sensitive.
pub type UserToken = http::HeaderValue;

/// The caller of a request.
#[derive(Debug, Clone, Default)]
pub struct Context {
    /// The request id, for the answer and the logs.
    pub request_id: Option<RequestId>,
    /// User id.
    pub user_id: String,
    /// User name; empty if the authenticator does not provide it.
    pub user_name: String,
    /// Project id; empty for an unscoped token.
    pub project_id: String,
    /// Project name; empty if the authenticator does not provide it.
    pub project_name: String,
    /// True if the token has system scope (`system: {"all": true}`).
    pub system: bool,
    /// Domain id; empty unless the token has domain scope.
    pub domain_id: String,
    /// The user's domain; empty if the authenticator does not provide it.
    pub user_domain_id: String,
    /// The project's domain; empty without a project.
    pub project_domain_id: String,
    /// Role names.
    pub roles: Vec<String>,
    /// Role names of the service token, if one was sent and accepted.
    pub service_roles: Vec<String>,
    /// True if a service vouches for the request: it has a service token with one of the roles that the
    /// authenticator accepts (`[keystone_authtoken] service_token_roles`).
    pub service: bool,
    /// True if the user's token has expired and the request has a context only because a service vouches for it.
    pub expired: bool,
    /// True if the token comes from a signature that a service received. The service that issued it refuses it.
    pub by_signature: bool,
    /// The user's token, for requests to other services of the cloud on the user's behalf; `None` if this
    /// process issued it. It is sensitive: no row and no log line may contain it.
    pub token: Option<UserToken>,
    /// True if the service's policy considers the caller an administrator; `None` if policy was not
    /// consulted, in which case the role decides.
    pub admin: Option<bool>,
}

impl Context {
    /// True if the caller has the role, ignoring case as policy rules do.
    pub fn has_role(&self, role: &str) -> bool {
        self.roles.iter().any(|have| have.eq_ignore_ascii_case(role))
    }

    /// True if the caller is an administrator: by the rule `context_is_admin`, or by the role `admin`.
    pub fn is_admin(&self) -> bool {
        self.admin.unwrap_or_else(|| self.has_role("admin"))
    }

    /// True if a service vouches for the request, by the authenticator's decision on its service token.
    pub fn is_service(&self) -> bool {
        self.service
    }

    /// True if the caller may see the project's resources: it is the caller's project, or the caller is an admin.
    pub fn may_see(&self, project_id: &str) -> bool {
        self.is_admin() || (!project_id.is_empty() && self.project_id == project_id)
    }

    /// `req-<uuid>`; empty without a request id.
    pub fn request_id_text(&self) -> String {
        self.request_id.map_or_else(String::new, |id| format!("req-{id}"))
    }

    /// Refuses anyone but an admin, with Nova's message.
    ///
    /// # Errors
    /// 403 naming `policy`.
    pub fn require_admin(&self, policy: &str) -> Result<(), Refusal> {
        if self.is_admin() {
            return Ok(());
        }
        Err(Refusal::forbidden(format!("Policy doesn't allow {policy} to be performed.")))
    }
}

impl<S: Sync> FromRequestParts<S> for Context {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        parts.extensions.get::<Self>().cloned().ok_or_else(|| {
            Refusal::unauthorized("The request you have made requires authentication.")
        })
    }
}
