//! Implied roles (role inference rules): `/v3/roles/{id}/implies` and `/v3/role_inferences`.

use axum::extract::{Path, State};
use kilonova_access::{Caller, Guard, Routes, delete, get, head, put};
use kilonova_wire::Base;
use serde_json::{Value, json};

use super::{Answer, created, id_of, may, no_content, ok, self_link};
use crate::Identity;
use crate::db::roles::Role;

pub(super) fn routes() -> Routes<Identity> {
    Routes::new()
        .route("/v3/role_inferences", [get("identity:list_role_inference_rules", inferences)])
        .route("/v3/roles/{id}/implies", [get("identity:list_implied_roles", list)])
        .route(
            "/v3/roles/{id}/implies/{implied}",
            [
                get("identity:get_implied_role", show),
                head(Guard::Object(&["identity:check_implied_role"]), check),
                put("identity:create_implied_role", create),
                delete("identity:delete_implied_role", remove),
            ],
        )
}

fn brief(role: &Role, base: &Base) -> Value {
    json!({"id": role.id, "name": role.name, "links": self_link(base, "roles", &role.id)})
}

/// The view of one role inference rule.
fn inference(prior: &Role, implied: &Role, base: &Base) -> Value {
    let path = format!("{}/v3/roles/{}/implies/{}", base.0, prior.id, implied.id);
    json!({
        "role_inference": {"prior_role": brief(prior, base), "implies": brief(implied, base)},
        "links": {"self": path},
    })
}

async fn inferences(State(identity): State<Identity>, base: Base) -> Answer {
    let shown = |(prior, implied): (Role, Vec<Role>)| {
        let implied: Vec<Value> = implied.iter().map(|role| brief(role, &base)).collect();
        json!({"prior_role": brief(&prior, &base), "implies": implied})
    };
    let all: Vec<Value> = identity.inferences().await?.into_iter().map(shown).collect();
    ok(json!({"role_inferences": all}))
}

async fn list(State(identity): State<Identity>, base: Base, Path(id): Path<String>) -> Answer {
    id_of("role", &id)?;
    let (prior, implied) = identity.implied_by(&id).await?;
    let implied: Vec<Value> = implied.iter().map(|role| brief(role, &base)).collect();
    ok(json!({
        "role_inference": {"prior_role": brief(&prior, &base), "implies": implied},
        "links": {"self": format!("{}/v3/roles/{id}/implies", base.0)},
    }))
}

type Both = Path<(String, String)>;

fn both(Path((prior, implied)): Both) -> Result<(String, String), kilonova_wire::Refusal> {
    id_of("role", &prior)?;
    id_of("role", &implied)?;
    Ok((prior, implied))
}

async fn show(State(identity): State<Identity>, base: Base, path: Both) -> Answer {
    let (prior, implied) = both(path)?;
    let (prior, implied) = identity.implication(&prior, &implied).await?;
    ok(inference(&prior, &implied, &base))
}

async fn check(State(identity): State<Identity>, caller: Caller, path: Both) -> Answer {
    may(&caller, "identity:check_implied_role", &[])?;
    let (prior, implied) = both(path)?;
    identity.implication(&prior, &implied).await?;
    no_content()
}

async fn create(State(identity): State<Identity>, base: Base, path: Both) -> Answer {
    let (prior, implied) = both(path)?;
    let (prior, implied) = identity.imply(&prior, &implied).await?;
    created(inference(&prior, &implied, &base))
}

async fn remove(State(identity): State<Identity>, path: Both) -> Answer {
    let (prior, implied) = both(path)?;
    identity.no_longer_imply(&prior, &implied).await?;
    no_content()
}
