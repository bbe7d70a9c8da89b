//! EC2 credentials of users (`OS-EC2`), as in `keystone/api/users.py`: the credentials of type `ec2` of `/v3/credentials`, by
//! their access keys.
//!
//! As in Keystone since 2026, the owner of a credential counts, not the user in its URL, and only members create and delete
//! credentials.

use axum::extract::{Path, State};
use axum::http::{HeaderMap, Uri};
use kilonova_access::{Caller, Guard, Routes, delete, get, post};
use kilonova_wire::{Base, Fault, JsonBody};
use serde_json::{Value, json};

use super::secrets::{OWNER, session, target};
use super::{Answer, created, id_of, listing, may, no_content, ok};
use crate::app::ec2::{Pair, check_pair};
use crate::app::{secrets, text};
use crate::db::secrets::StoredSecret;
use crate::{Error, Identity};

const LIST: &str = "identity:ec2_list_credentials";
const SHOW: &str = "identity:ec2_get_credential";
const CREATE: &str = "identity:ec2_create_credential";
const DELETE: &str = "identity:ec2_delete_credential";

pub(super) fn routes() -> Routes<Identity> {
    Routes::new()
        .route(
            "/v3/users/{user}/credentials/OS-EC2",
            [get(Guard::Object(&[LIST]), list), post(Guard::Object(&[CREATE]), create)],
        )
        .route(
            "/v3/users/{user}/credentials/OS-EC2/{access}",
            [get(Guard::Object(&[SHOW]), show), delete(Guard::Object(&[DELETE]), remove)],
        )
}

fn view(pair: &Pair, base: &Base) -> Value {
    let link = format!(
        "{}/v3/users/{}/credentials/OS-EC2/{}",
        base.0,
        pair.user_id,
        pair.access.as_str().unwrap_or_default()
    );
    json!({
        "user_id": pair.user_id,
        "tenant_id": pair.project_id,
        "access": pair.access,
        "secret": pair.secret,
        "trust_id": pair.trust_id,
        "links": {"self": link},
    })
}

async fn list(
    State(identity): State<Identity>,
    caller: Caller,
    headers: HeaderMap,
    base: Base,
    uri: Uri,
    Path(user): Path<String>,
) -> Answer {
    may(&caller, LIST, &[("user_id", &user)])?;
    let session = session(&identity, &headers).await?;
    id_of("user", &user)?;
    let pairs = identity.pairs(&session, &user).await?;
    let items = pairs.iter().map(|pair| view(pair, &base)).collect();
    listing(&base, &uri, "credentials", items)
}

async fn create(
    State(identity): State<Identity>,
    caller: Caller,
    headers: HeaderMap,
    base: Base,
    Path(user): Path<String>,
    body: JsonBody,
) -> Answer {
    may(&caller, CREATE, &[("user_id", &user), (OWNER, &user)])?;
    let session = session(&identity, &headers).await?;
    id_of("user", &user)?;
    let Value::Object(fields) = body.0 else {
        return Err(Error::Invalid("The request body must be an object.".to_owned()).into());
    };
    let project = text(&fields, "tenant_id")?;
    let pair = identity.create_pair(&session, &user, project).await?;
    created(json!({"credential": view(&pair, &base)}))
}

/// The stored credential with this access key, if the rule allows the caller to use it. As in Keystone, a missing one is
/// a 404 before the rule.
async fn found(
    identity: &Identity,
    caller: &Caller,
    headers: &HeaderMap,
    rule: &str,
    user: &str,
    access: &str,
) -> Result<StoredSecret, Fault> {
    let stored = identity.secret(&secrets::id_of(access)).await?;
    let named = [("user_id", user)];
    let target: Vec<_> = target(&stored).into_iter().chain(named).collect();
    may(caller, rule, &target)?;
    let session = session(identity, headers).await?;
    id_of("user", user)?;
    identity.user(user).await?;
    check_pair(&session, &stored).map_err(|error| identity.refuse(error))?;
    Ok(stored)
}

async fn show(
    State(identity): State<Identity>,
    caller: Caller,
    headers: HeaderMap,
    base: Base,
    Path((user, access)): Path<(String, String)>,
) -> Answer {
    let stored = found(&identity, &caller, &headers, SHOW, &user, &access).await?;
    let pair = Pair::of(identity.open_secret(stored).await?);
    ok(json!({"credential": view(&pair, &base)}))
}

async fn remove(
    State(identity): State<Identity>,
    caller: Caller,
    headers: HeaderMap,
    Path((user, access)): Path<(String, String)>,
) -> Answer {
    let stored = found(&identity, &caller, &headers, DELETE, &user, &access).await?;
    identity.delete_secret(&stored.id).await?;
    no_content()
}
