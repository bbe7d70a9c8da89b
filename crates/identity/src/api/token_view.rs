//! A token as it is shown.

use kilonova_wire::time;
use serde_json::{Value, json};

use crate::app::session::Session;
use crate::catalog::{self, CatalogEntry};
use crate::{DOMAIN_ID, DOMAIN_NAME};

fn domain() -> Value {
    json!({"id": DOMAIN_ID, "name": DOMAIN_NAME})
}

/// The body of a login and of a validation; without `entries`, no catalog.
pub(super) fn view(session: &Session, entries: Option<&[CatalogEntry]>, root: &str) -> Value {
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
    if let Some(project) = &session.project {
        token["project"] = json!({"domain": domain(), "id": project.id, "name": project.name});
        token["is_domain"] = false.into();
        token["roles"] =
            session.roles.iter().map(|role| json!({"id": role.id, "name": role.name})).collect();
        if let Some(entries) = entries {
            token["catalog"] = catalog::view(entries, root);
        }
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
