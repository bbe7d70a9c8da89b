//! Nova's calls for an instance with an accelerator: create an ARQ, bind it, show it, delete it. They
//! go over HTTP to Kilonova, or to a Cyborg that trusts the identity headers.

use std::time::Duration;

use hyper::Method;
use kilonova_ids::HostName;
use kilonova_program::Failure;
use serde_json::{Value, json};
use uuid::Uuid;

use super::super::client::Client;
use super::statements::Counter;
use super::table::Row;
use super::{ROUNDS, Target, row};

/// The device profile of all requests: one accelerator.
pub const PROFILE: &str = "kilonova-bench";
/// The project of all requests.
pub const PROJECT: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
/// GETs for each cycle: one is too short for the resolution of CPU time.
const SHOWS_PER_CYCLE: usize = 20;

/// The attempts of a bind, and the pause between them.
const BIND_ATTEMPTS: usize = 100;
const BIND_PAUSE: Duration = Duration::from_millis(5);

/// A device that requests are bound to.
#[derive(Clone)]
pub struct DeviceRef {
    host: HostName,
    provider: String,
}

impl DeviceRef {
    /// The device on this host with this resource provider.
    pub fn new(host: HostName, provider: String) -> Self {
        Self { host, provider }
    }

    /// The PATCH body that binds a request to the device.
    pub fn bind(&self, arq: &str, instance: &str) -> Value {
        let step = |path: &str, value: &str| json!({"path": path, "op": "add", "value": value});
        json!({arq: [
            step("/hostname", &self.host),
            step("/device_rp_uuid", &self.provider),
            step("/instance_uuid", instance),
        ]})
    }
}

/// A client that makes the calls of Nova.
pub struct ArqCycle {
    client: tokio::sync::Mutex<Client>,
    path: String,
    device: DeviceRef,
}

/// The identity headers of a service that acts for an admin.
pub fn headers() -> Vec<(&'static str, &'static str)> {
    vec![
        ("x-user-id", "bench"),
        ("x-project-id", PROJECT),
        ("x-roles", "admin,member,reader"),
        ("x-service-roles", "service"),
        ("x-service-token", "bench"),
    ]
}

impl ArqCycle {
    /// Connects and creates the profile.
    pub async fn start(target: &Target, device: DeviceRef) -> Result<Self, Failure> {
        let client = Client::connect(&target.address, "bench").await?;
        let client = client.with_version("accelerator 2.1").with_headers(headers());
        let path = target.path.clone();
        let cycle = Self { client: tokio::sync::Mutex::new(client), path, device };
        let found =
            cycle.call(Method::GET, &format!("/device_profiles?name={PROFILE}"), None).await?;
        if found["device_profiles"].as_array().is_none_or(Vec::is_empty) {
            let profile = json!([{"name": PROFILE, "groups": [{"resources:FPGA": "1"}]}]);
            cycle.call(Method::POST, "/device_profiles", Some(profile)).await?;
        }
        Ok(cycle)
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Value, Failure> {
        let path = format!("{}{path}", self.path);
        let body = body.map_or_else(String::new, |body| body.to_string());
        let mut client = self.client.lock().await;
        let reply = client.send(method.clone(), &path, "application/json", body).await?;
        if reply.status >= 300 {
            let message = String::from_utf8_lossy(&reply.body);
            return Err(Failure::Failed(format!("{method} {path}: {} {message}", reply.status)));
        }
        Ok(reply.json())
    }

    async fn create(&self) -> Result<String, Failure> {
        let body = json!({"device_profile_name": PROFILE});
        let made = self.call(Method::POST, "/accelerator_requests", Some(body)).await?;
        Ok(made["arqs"][0]["uuid"].as_str().unwrap_or_default().to_owned())
    }

    async fn bind(&self, arq: &str) -> Result<String, Failure> {
        let instance = Uuid::new_v4().to_string();
        let body = self.device.bind(arq, &instance);
        // A handle that was just released is free only after its host acknowledges.
        let mut attempts = BIND_ATTEMPTS;
        loop {
            match self.call(Method::PATCH, "/accelerator_requests", Some(body.clone())).await {
                Ok(_) => return Ok(instance),
                Err(error) if attempts == 0 => return Err(error),
                Err(_) => attempts -= 1,
            }
            tokio::time::sleep(BIND_PAUSE).await;
        }
    }

    async fn show(&self, instance: &str) -> Result<(), Failure> {
        let path = format!("/accelerator_requests?instance={instance}");
        let seen = self.call(Method::GET, &path, None).await?;
        match seen["arqs"].as_array().map(Vec::as_slice) {
            Some([arq]) if arq["state"] == "Bound" => Ok(()),
            _ => Err(Failure::Failed(format!("an instance with one bound request has {seen}"))),
        }
    }

    async fn delete(&self, instance: &str) -> Result<(), Failure> {
        let path = format!("/accelerator_requests?instance={instance}");
        self.call(Method::DELETE, &path, None).await.map(|_| ())
    }

    /// CPU time of create, bind and delete together, and of a GET.
    pub async fn measure(
        &self,
        target: &Target,
        cycles: usize,
        others: usize,
    ) -> Result<Vec<Row>, Failure> {
        let (mut cycle_costs, mut show_costs) = (Vec::new(), Vec::new());
        let work = || async {
            for _ in 0..cycles {
                let instance = self.bind(&self.create().await?).await?;
                self.delete(&instance).await?;
            }
            Ok(())
        };
        work().await?;
        for _ in 0..ROUNDS {
            cycle_costs.push(target.cpu_of(work()).await?.0);
        }
        let instance = self.bind(&self.create().await?).await?;
        let count =
            if others > 0 && cycles < SHOWS_PER_CYCLE { cycles } else { cycles * SHOWS_PER_CYCLE };
        let show = || async {
            for _ in 0..count {
                self.show(&instance).await?;
            }
            Ok(())
        };
        for _ in 0..ROUNDS {
            show_costs.push(target.cpu_of(show()).await?.0);
        }
        self.delete(&instance).await?;
        let of = |what: &str| format!("{what}, {others} other requests");
        Ok(vec![
            row(of("create + bind + delete"), Some(3.0), &cycle_costs, cycles as f64),
            row(of("GET ?instance="), Some(0.2), &show_costs, count as f64),
        ])
    }

    /// Creates unbound requests until there are `others`.
    pub async fn ensure_unbound(&self, others: usize) -> Result<(), Failure> {
        let seen = self.call(Method::GET, "/accelerator_requests", None).await?;
        for _ in seen["arqs"].as_array().map_or(0, Vec::len)..others {
            self.create().await?;
        }
        Ok(())
    }

    /// Deletes the requests of [`ArqCycle::ensure_unbound`] and the profile.
    pub async fn clean_up(&self) -> Result<(), Failure> {
        let seen = self.call(Method::GET, "/accelerator_requests", None).await?;
        for arq in seen["arqs"].as_array().into_iter().flatten() {
            let uuid = arq["uuid"].as_str().unwrap_or_default();
            self.call(Method::DELETE, &format!("/accelerator_requests?arqs={uuid}"), None).await?;
        }
        self.call(Method::DELETE, &format!("/device_profiles/{PROFILE}"), None).await.map(|_| ())
    }

    /// The statements that the database runs for each of the four calls.
    pub async fn statements(
        &self,
        count: &Counter<'_>,
        others: usize,
    ) -> Result<Vec<Row>, Failure> {
        count.since().await?;
        let arq = self.create().await?;
        let create = count.since().await?;
        let instance = self.bind(&arq).await?;
        let bind = count.since().await?;
        self.show(&instance).await?;
        let show = count.since().await?;
        self.delete(&instance).await?;
        Ok(super::statements::rows([create, bind, show, count.since().await?], others))
    }
}
