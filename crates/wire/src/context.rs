//! Who asks, on behalf of which project, with which roles.

use axum::extract::FromRequestParts;
use http::request::Parts;
use kilonova_ids::RequestId;

use crate::Fault;

/// The caller of a request.
#[derive(Debug, Clone, Default)]
pub struct Context {
    /// The id that the answer and the logs carry.
    pub request_id: Option<RequestId>,
    /// User id.
    pub user_id: String,
    /// User name, empty where the authenticator does not know it.
    pub user_name: String,
    /// Project id, empty for an unscoped token.
    pub project_id: String,
    /// Project name, empty where the authenticator does not know it.
    pub project_name: String,
    /// Whether the token is for the whole cloud (`system: {"all": true}`).
    pub system: bool,
    /// Domain id, empty unless the token is for a domain.
    pub domain_id: String,
    /// The domain of the user; empty where the authenticator does not know it.
    pub user_domain_id: String,
    /// The domain of the project; empty when there is no project.
    pub project_domain_id: String,
    /// Role names.
    pub roles: Vec<String>,
    /// Role names of the service token that came along.
    pub service_roles: Vec<String>,
    /// Whether the service's policy takes the caller for an administrator; nothing when it was not
    /// asked, and then the role decides.
    pub admin: Option<bool>,
}

impl Context {
    /// Whether the caller has the role, in any spelling, as rules have it.
    pub fn has_role(&self, role: &str) -> bool {
        self.roles.iter().any(|have| have.eq_ignore_ascii_case(role))
    }

    /// Whether the caller is an administrator: by the service's rule `context_is_admin`, or by the
    /// role `admin`.
    pub fn is_admin(&self) -> bool {
        self.admin.unwrap_or_else(|| self.has_role("admin"))
    }

    /// Whether a service vouches for the request (role `service` on the service token).
    pub fn is_service(&self) -> bool {
        self.service_roles.iter().any(|role| role.eq_ignore_ascii_case("service"))
    }

    /// Whether the caller may see things of the project: its own, or any as an admin.
    pub fn may_see(&self, project_id: &str) -> bool {
        self.is_admin() || (!project_id.is_empty() && self.project_id == project_id)
    }

    /// `req-<uuid>`.
    pub fn request_id_text(&self) -> String {
        self.request_id.map_or_else(String::new, |id| format!("req-{id}"))
    }

    /// Refuses anyone who is not an admin, in Nova's words.
    ///
    /// # Errors
    /// 403 naming `policy`.
    pub fn require_admin(&self, policy: &str) -> Result<(), Fault> {
        if self.is_admin() {
            return Ok(());
        }
        Err(Fault::forbidden(format!("Policy doesn't allow {policy} to be performed.")))
    }
}

impl<S: Sync> FromRequestParts<S> for Context {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Fault> {
        parts.extensions.get::<Self>().cloned().ok_or_else(|| {
            Fault::unauthorized("The request you have made requires authentication.")
        })
    }
}
