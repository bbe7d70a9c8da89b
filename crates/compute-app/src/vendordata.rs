//! Dynamic vendor data: data for each guest from the operator's services (Nova: `DynamicJSON`).
//!
//! Each service receives a description of the server by `POST`, with the roles of the server's creator, and its answer
//! becomes a part of the guest's `vendor_data2.json` under the service's name. Controllers call the services outside of
//! transactions and with bounded waits. Hosts have no login for these services and never call them.

use std::sync::Arc;
use std::time::Duration;

use kilonova_compute_db::servers::Server;
use kilonova_ids::ServerId;
use kilonova_keystone::{Error as CallError, Http, Session, SessionToken};
use kilonova_wire::Refusal;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

/// Maximum number of servers for which the services are called concurrently.
const AT_ONCE: usize = 64;
/// The total time limit of all calls for one server. It must stay below 45 s, after which a host
/// abandons its request to the controller and repeats it.
const TIMEOUT: Duration = Duration::from_secs(35);
/// The user agent of the requests, which is Nova's, because services may check it.
const USER_AGENT: &str = "openstack-nova-vendordata";

/// A service of the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The key of its answer.
    pub name: String,
    /// Its URL, which may contain secrets and is therefore not logged.
    pub url: String,
}

/// The services of the operator.
pub struct DynamicVendordata {
    targets: Vec<Target>,
    http: Http,
    /// The login whose token the services receive, if there is one.
    session: Option<Arc<Session>>,
    /// True if a guest must not start without an answer (`[api] vendordata_dynamic_failure_fatal`).
    is_failure_fatal: bool,
    slots: Semaphore,
    timeout: Duration,
}

impl DynamicVendordata {
    /// Maximum size of a service's answer, in bytes.
    pub const LARGEST: usize = 256 * 1024;

    /// Prepares calls to these services, without sending anything.
    pub fn new(
        targets: Vec<Target>,
        http: Http,
        session: Option<Arc<Session>>,
        is_failure_fatal: bool,
    ) -> Self {
        let slots = Semaphore::new(AT_ONCE);
        Self { targets, http, session, is_failure_fatal, slots, timeout: TIMEOUT }
    }

    /// Calls all services for a server, one after the other. `{}` replaces the answer of a service that
    /// fails or does not answer in time.
    ///
    /// # Errors
    /// If a service fails and the operator has configured such failures as fatal. The log contains the reason.
    pub async fn ask(&self, server: &Server) -> Result<Map<String, Value>, Refusal> {
        self.ask_about(server.id, &describe(server)).await
    }

    async fn ask_about(
        &self,
        server: ServerId,
        description: &Value,
    ) -> Result<Map<String, Value>, Refusal> {
        let end = Instant::now() + self.timeout;
        let late = || Err(format!("all services together took longer than {:?}", self.timeout));
        let slot = timeout_at(end, self.slots.acquire()).await;
        let mut answers = Map::new();
        for target in &self.targets {
            let asked = match &slot {
                Ok(_) => timeout_at(end, self.ask_one(target, description)).await.ok(),
                Err(_) => None,
            };
            match asked.unwrap_or_else(late) {
                Ok(answer) => {
                    answers.insert(target.name.clone(), answer);
                }
                Err(why) => {
                    tracing::warn!(
                        %server, service = target.name, why,
                        "a vendor data service of [api] vendordata_dynamic_targets failed"
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
        // The token may have been revoked before its expiry.
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

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// Services that accept connections and never answer.
    #[tokio::test]
    async fn silent_services_together_take_less_time_than_a_host_waits() {
        let socket = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let url = format!("http://{}/", socket.local_addr().expect("the socket has an address"));
        let target = |name: &str| Target { name: name.to_owned(), url: url.clone() };
        let targets: Vec<Target> = ["a", "b", "c"].map(target).into();
        let of = |is_fatal: bool| {
            let http = Http::plain(Duration::from_secs(60), 1 << 20).expect("a client is created");
            let new = DynamicVendordata::new(targets.clone(), http, None, is_fatal);
            DynamicVendordata { timeout: Duration::from_millis(300), ..new }
        };
        let (server, begun) = (ServerId::new_v4(), Instant::now());
        let services = of(false);
        let answers = services.ask_about(server, &json!({})).await.expect("it goes on");
        assert_eq!(json!(answers), json!({"a": {}, "b": {}, "c": {}}));
        // All slots are in use, so no service is called for this server.
        let all = u32::try_from(AT_ONCE).expect("the number fits");
        let slots = services.slots.acquire_many(all).await.expect("the slots are open");
        let answers = services.ask_about(server, &json!({})).await.expect("it goes on");
        assert_eq!(answers.len(), 3);
        drop(slots);
        of(true).ask_about(server, &json!({})).await.expect_err("it is fatal");
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    }
}
