//! `auth_strategy = noauth2`: trusts the caller's headers. For tests on the loopback interface.
//!
//! `X-Auth-Token: user[:project]` as in Placement (`placement/auth.py`): user `admin` has the role
//! admin, and others have member, unless `X-Roles` is set. Roles imply lower roles, as in Keystone.
//! The accelerator API's headers (`X-User-Id`, `X-Project-Id`, `X-Roles`, `X-Service-Roles`) are
//! trusted, as in Cyborg without `authtoken` in its pipeline.

use http::HeaderMap;

use crate::auth::Authentication;
use crate::{Authenticator, Context, Refusal};

/// An authenticator that trusts the headers of a request.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoAuth;

impl Authenticator for NoAuth {
    fn authenticate<'a>(&'a self, headers: &'a HeaderMap) -> Authentication<'a> {
        Box::pin(async move { Ok(context(headers)?) })
    }
}

fn context(headers: &HeaderMap) -> Result<Context, Refusal> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let list = |name: &str| -> Vec<String> {
        text(name)
            .into_iter()
            .flat_map(|roles| roles.split(','))
            .map(|role| role.trim().to_owned())
            .filter(|role| !role.is_empty())
            .collect()
    };
    let token = text("x-auth-token");
    if token.is_none() && text("x-user-id").is_none() && text("x-roles").is_none() {
        return Err(Refusal::unauthorized("Authentication required"));
    }
    let whole = token.unwrap_or_default();
    let (user, project) = whole.split_once(':').unwrap_or((whole, ""));
    let project = if project.is_empty() { user } else { project };
    let user = text("x-user-id").unwrap_or(user).to_owned();
    let project = text("x-project-id").or(text("x-tenant-id")).unwrap_or(project);
    let mut roles = list("x-roles");
    if text("x-roles").is_none() {
        roles.push(if user == "admin" { "admin".into() } else { "member".into() });
    }
    imply(&mut roles);
    let service_roles = list("x-service-roles");
    let system = text("openstack-system-scope") == Some("all");
    let token = headers.get("x-auth-token").cloned().map(|mut token| {
        token.set_sensitive(true);
        token
    });
    Ok(Context {
        token,
        request_id: None,
        user_name: user.clone(),
        user_id: user,
        project_id: if system { String::new() } else { project.to_owned() },
        system,
        roles,
        service: service_roles.iter().any(|role| role.eq_ignore_ascii_case("service")),
        service_roles,
        user_domain_id: DOMAIN.to_owned(),
        project_domain_id: if system { String::new() } else { DOMAIN.to_owned() },
        ..Context::default()
    })
}

/// The domain of all users and projects.
const DOMAIN: &str = "default";
/// Each role implies the next.
const CHAIN: [&str; 4] = ["admin", "manager", "member", "reader"];

fn imply(roles: &mut Vec<String>) {
    let Some(first) = CHAIN.iter().position(|name| roles.iter().any(|role| role == name)) else {
        return;
    };
    for name in &CHAIN[first..] {
        if !roles.iter().any(|role| role == name) {
            roles.push((*name).to_owned());
        }
    }
}
