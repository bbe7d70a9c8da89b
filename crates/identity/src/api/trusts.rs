//! `OS-TRUST`: trusts and their roles.

use axum::extract::{Path, State};
use axum::http::{HeaderMap, Uri};
use kilonova_access::{Caller, Guard, Routes, delete, get, post};
use kilonova_wire::query::Query;
use kilonova_wire::{Base, Fault, JsonBody, time};
use serde_json::{Value, json};

use super::target::PolicyTarget;
use super::{Answer, created, fields, id_of, listing, may, no_content, ok, roles};
use crate::app::session::Session;
use crate::app::trusts::{TrustFilter, WithRoles, refuse_credential};
use crate::db::trusts::Trust;
use crate::{Error, Identity};

const ALL: &str = "identity:list_trusts";
const OF_TRUSTOR: &str = "identity:list_trusts_for_trustor";
const OF_TRUSTEE: &str = "identity:list_trusts_for_trustee";

pub(super) fn routes() -> Routes<Identity> {
    let rule = |rules| Guard::Object(rules);
    Routes::new()
        .route(
            "/v3/OS-TRUST/trusts",
            [
                get(rule(&[ALL, OF_TRUSTOR, OF_TRUSTEE]), list),
                post(rule(&["identity:create_trust"]), create),
            ],
        )
        .route(
            "/v3/OS-TRUST/trusts/{id}",
            [
                get(rule(&["identity:get_trust"]), show),
                delete(rule(&["identity:delete_trust"]), remove),
            ],
        )
        .route(
            "/v3/OS-TRUST/trusts/{id}/roles",
            [get(rule(&["identity:list_roles_for_trust"]), roles_of)],
        )
        .route(
            "/v3/OS-TRUST/trusts/{id}/roles/{role}",
            [get(rule(&["identity:get_role_for_trust"]), role_of)],
        )
}

fn bare(trust: &Trust, base: &Base) -> Value {
    json!({
        "id": trust.id,
        "trustor_user_id": trust.trustor,
        "trustee_user_id": trust.trustee,
        "project_id": trust.project,
        "impersonation": trust.impersonation,
        "expires_at": trust.expires_at.map(time::keystone),
        "remaining_uses": trust.remaining_uses,
        "redelegation_count": trust.redelegation_count,
        "redelegated_trust_id": trust.parent,
        "deleted_at": null,
        "links": {"self": format!("{}/v3/OS-TRUST/trusts/{}", base.0, trust.id)},
    })
}

fn roles_link(trust: &Trust, base: &Base) -> Value {
    json!({
        "self": format!("{}/v3/OS-TRUST/trusts/{}/roles", base.0, trust.id),
        "next": null,
        "previous": null,
    })
}

fn view((trust, roles): &WithRoles, base: &Base) -> Value {
    let mut view = bare(trust, base);
    view["roles"] = roles.iter().map(|role| roles::view(role, base)).collect();
    view["roles_links"] = roles_link(trust, base);
    view
}

/// A trust, if the rule allows the caller to use it. A missing trust is a 404 for every caller, as
/// in Keystone.
async fn found(
    identity: &Identity,
    caller: &Caller,
    headers: &HeaderMap,
    rule: &str,
    id: &str,
) -> Result<WithRoles, Fault> {
    id_of("trust", id)?;
    let found = identity.trust(id).await?;
    let view = bare(&found.0, &Base(String::new()));
    let target = PolicyTarget::of(caller, rule).with("trust_id", id).object("trust", &view);
    target.may(identity).await?;
    session(identity, headers).await?;
    Ok(found)
}

/// The caller's session, which must not be that of an application credential.
async fn session(identity: &Identity, headers: &HeaderMap) -> Result<Session, Fault> {
    let session = identity.caller(headers).await.map_err(|error| identity.refuse(error))?;
    refuse_credential(&session)?;
    Ok(session)
}

async fn list(
    State(identity): State<Identity>,
    caller: Caller,
    headers: HeaderMap,
    base: Base,
    uri: Uri,
    query: Query,
) -> Answer {
    let user = |key: &str| query.get(key).filter(|id| !id.is_empty()).map(str::to_owned);
    let filter = match (user("trustor_user_id"), user("trustee_user_id")) {
        (Some(id), _) => {
            may(&caller, OF_TRUSTOR, &[("target.trust.trustor_user_id", &id)])?;
            TrustFilter::Trustor(id)
        }
        (None, Some(id)) => {
            may(&caller, OF_TRUSTEE, &[("target.trust.trustee_user_id", &id)])?;
            TrustFilter::Trustee(id)
        }
        (None, None) => {
            may(&caller, ALL, &[])?;
            TrustFilter::All
        }
    };
    session(&identity, &headers).await?;
    let found = match &filter {
        TrustFilter::Trustor(id) | TrustFilter::Trustee(id) if id.chars().any(char::is_control) => {
            Vec::new()
        }
        _ => identity.trusts(filter).await?,
    };
    let items = found.iter().map(|trust| bare(trust, &base)).collect();
    listing(&base, &uri, "trusts", items)
}

async fn create(
    State(identity): State<Identity>,
    caller: Caller,
    headers: HeaderMap,
    base: Base,
    body: JsonBody,
) -> Answer {
    let fields = fields(body, "trust")?;
    let trustor = fields.get("trustor_user_id").and_then(Value::as_str).unwrap_or_default();
    may(&caller, "identity:create_trust", &[("target.trust.trustor_user_id", trustor)])?;
    let session = session(&identity, &headers).await?;
    let made = identity.create_trust(&session, &fields).await?;
    created(json!({"trust": view(&made, &base)}))
}

async fn show(
    State(identity): State<Identity>,
    caller: Caller,
    headers: HeaderMap,
    base: Base,
    Path(id): Path<String>,
) -> Answer {
    let found = found(&identity, &caller, &headers, "identity:get_trust", &id).await?;
    ok(json!({"trust": view(&found, &base)}))
}

async fn remove(
    State(identity): State<Identity>,
    caller: Caller,
    headers: HeaderMap,
    Path(id): Path<String>,
) -> Answer {
    found(&identity, &caller, &headers, "identity:delete_trust", &id).await?;
    identity.delete_trust(&id).await?;
    no_content()
}

async fn roles_of(
    State(identity): State<Identity>,
    caller: Caller,
    headers: HeaderMap,
    base: Base,
    Path(id): Path<String>,
) -> Answer {
    let found = found(&identity, &caller, &headers, "identity:list_roles_for_trust", &id).await?;
    let items: Vec<Value> = found.1.iter().map(|role| roles::view(role, &base)).collect();
    ok(json!({"roles": items, "links": roles_link(&found.0, &base)}))
}

async fn role_of(
    State(identity): State<Identity>,
    caller: Caller,
    headers: HeaderMap,
    base: Base,
    Path((id, role)): Path<(String, String)>,
) -> Answer {
    let found = found(&identity, &caller, &headers, "identity:get_role_for_trust", &id).await?;
    match found.1.iter().find(|one| one.id == role) {
        Some(role) => ok(json!({"role": roles::view(role, &base)})),
        None => Err(Error::NotFound("role", role.escape_debug().to_string()).into()),
    }
}
