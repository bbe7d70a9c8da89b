//! Dynamic vendor data: what services of the operator tell each guest (Nova: `DynamicJSON`).
//!
//! Each service gets a description of the server by `POST`, with the roles of the user who created it, and its
//! answer becomes a part of the guest's `vendor_data2.json` under the service's name. Services are asked in no
//! transaction and with bounded waits, and never by a host: hosts have no login for them.

use std::sync::Arc;

use kilonova_compute_db::servers::Server;
use kilonova_keystone::{Error as CallError, Http, Session, SessionToken};
use kilonova_wire::Refusal;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

/// The most servers about which services are asked at once.
const AT_ONCE: usize = 64;
/// The name under which we ask, which is that of Nova: services may look at it.
const USER_AGENT: &str = "openstack-nova-vendordata";

/// A service of the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The key of its answer.
    pub name: String,
    /// Where it is asked. It may contain secrets, so it is not logged.
    pub url: String,
}

/// The services of the operator.
pub struct DynamicVendordata {
    targets: Vec<Target>,
    http: Http,
    /// The login whose token the services get, if there is one.
    session: Option<Arc<Session>>,
    /// True if a guest must not go without an answer (`[api] vendordata_dynamic_failure_fatal`).
    is_failure_fatal: bool,
    slots: Semaphore,
}

impl DynamicVendordata {
    /// The largest answer of a service, in bytes.
    pub const LARGEST: usize = 256 * 1024;

    /// The services.
    pub fn new(
        targets: Vec<Target>,
        http: Http,
        session: Option<Arc<Session>>,
        is_failure_fatal: bool,
    ) -> Self {
        Self { targets, http, session, is_failure_fatal, slots: Semaphore::new(AT_ONCE) }
    }

    /// Asks all services about a server, one after the other. A service that fails answers nothing, `{}`.
    ///
    /// # Errors
    /// If a service fails and the operator decided that this is fatal. The log has the reason.
    pub async fn ask(&self, server: &Server) -> Result<Map<String, Value>, Refusal> {
        let _slot = self.slots.acquire().await;
        let description = describe(server);
        let mut answers = Map::new();
        for target in &self.targets {
            match self.ask_one(target, &description).await {
                Ok(answer) => {
                    answers.insert(target.name.clone(), answer);
                }
                Err(why) => {
                    tracing::warn!(
                        server = %server.id, service = target.name, why,
                        "a vendor data service of [api] vendordata_dynamic_targets did not answer"
                    );
                    if self.is_failure_fatal {
                        let why = format!("the vendor data service {} failed: {why}", target.name);
                        return Err(Refusal::internal(why));
                    }
                    answers.insert(target.name.clone(), json!({}));
                }
            }
        }
        Ok(answers)
    }

    async fn ask_one(&self, target: &Target, description: &Value) -> Result<Value, String> {
        let mut token = match &self.session {
            Some(session) => Some(session.token().await.map_err(|error| error.to_string())?),
            None => None,
        };
        let mut answer = self.send(target, token.as_deref(), description).await?;
        // The token may have been revoked before its end.
        if let (401, Some(session), Some(old)) = (answer.status.as_u16(), &self.session, &token) {
            token = Some(session.renewed(old).await.map_err(|error| error.to_string())?);
            answer = self.send(target, token.as_deref(), description).await?;
        }
        if !answer.status.is_success() {
            return Err(format!("it answered {}", answer.status));
        }
        if answer.body.is_empty() {
            return Ok(json!({}));
        }
        serde_json::from_slice(&answer.body)
            .map_err(|error| format!("its answer is not JSON: {error}"))
    }

    async fn send(
        &self,
        target: &Target,
        token: Option<&SessionToken>,
        description: &Value,
    ) -> Result<kilonova_keystone::Answer, String> {
        let sent = self.http.post_json(&target.url, token, USER_AGENT, description).await;
        sent.map_err(|error| match error {
            CallError::Unreachable { cause, .. } => cause,
            CallError::Unexpected { what, .. } => format!("it answered {what}"),
            CallError::Setup(_) => "its URL is not valid".to_owned(),
            other => other.to_string(),
        })
    }
}

impl std::fmt::Debug for DynamicVendordata {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.targets.iter().map(|target| &*target.name).collect();
        f.debug_struct("DynamicVendordata").field("targets", &names).finish_non_exhaustive()
    }
}

/// The description of a server, with Nova's keys.
fn describe(server: &Server) -> Value {
    let spec = &server.spec;
    json!({
        "project-id": server.project_id,
        "instance-id": server.id,
        "image-id": spec.image.map_or_else(String::new, |image| image.to_string()),
        "user-data": spec.user_data,
        "hostname": spec.hostname,
        "metadata": server.metadata,
        "boot-roles": spec.creator.boot_roles(),
    })
}
