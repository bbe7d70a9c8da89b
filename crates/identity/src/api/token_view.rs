//! The API view of a token.

use kilonova_wire::time;
use serde_json::{Value, json};

use crate::app::catalog::Registered;
use crate::app::session::{Session, SessionScope};
use crate::catalog::{self, CatalogEntry};
use crate::{DOMAIN_ID, DOMAIN_NAME};

fn domain() -> Value {
    json!({"id": DOMAIN_ID, "name": DOMAIN_NAME})
}

/// The sources of the catalog.
pub(super) struct Entries<'a> {
    pub own: &'a [CatalogEntry],
    pub registered: &'a Registered,
    pub root: &'a str,
}

/// The body of a login and of a validation; without a catalog if `entries` is `None`.
pub(super) fn view(session: &Session, entries: Option<&Entries<'_>>) -> Value {
    let methods: Vec<&str> = session.token.methods.iter().map(|m| m.name()).collect();
    let mut token = json!({
        "methods": methods,
        "user": {
            "domain": domain(),
            "id": session.user.id,
            "name": session.user.name,
            "password_expires_at": null,
        },
        "audit_ids": session.token.audit_ids(),
        "expires_at": time::keystone(session.token.expires),
        "issued_at": time::keystone(session.token.issued),
    });
    match &session.scope {
        SessionScope::Unscoped => {}
        SessionScope::Project(project) => {
            token["project"] = json!({"domain": domain(), "id": project.id, "name": project.name});
            if session.trust.is_none() {
                token["is_domain"] = false.into();
            }
        }
        SessionScope::Domain => token["domain"] = domain(),
        SessionScope::System => token["system"] = json!({"all": true}),
    }
    if !matches!(session.scope, SessionScope::Unscoped) {
        let roles = session.roles.iter();
        token["roles"] = roles.map(|role| json!({"id": role.id, "name": role.name})).collect();
        if let Some(Entries { own, registered, root }) = entries {
            let project = session.project().map(|project| project.id.as_str());
            token["catalog"] = catalog::view(own, registered, root, project, &session.user.id);
        }
    }
    if let Some(trust) = &session.trust {
        token["OS-TRUST:trust"] = json!({
            "id": trust.id,
            "trustor_user": {"id": trust.trustor},
            "trustee_user": {"id": trust.trustee},
            "impersonation": trust.impersonation,
        });
    }
    if let Some(credential) = &session.credential {
        token["application_credential"] = json!({
            "id": credential.id,
            "name": credential.name,
            "restricted": !credential.unrestricted,
        });
    }
    json!({"token": token})
}
