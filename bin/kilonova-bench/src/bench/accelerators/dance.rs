//! What Nova asks for an instance with an accelerator: make a request, bind it, look it up, delete it.
//! The same over HTTP to any Cyborg that believes what the headers say.

use std::time::Duration;

use hyper::Method;
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
/// Lookups for each cycle: one is too short for the clock of CPU time.
const LOOKS: usize = 20;

/// How often a bind is tried, and how long after each other.
const TRIES: usize = 100;
const PAUSE: Duration = Duration::from_millis(5);

/// A device that requests are bound to.
#[derive(Clone)]
pub struct Place {
    host: String,
    provider: String,
}

impl Place {
    /// By the names of its host and its resource provider.
    pub fn new(host: String, provider: String) -> Self {
        Self { host, provider }
    }

    /// The PATCH that binds a request there.
    pub fn bind(&self, arq: &str, instance: &str) -> Value {
        let step = |path: &str, value: &str| json!({"path": path, "op": "add", "value": value});
        json!({arq: [
            step("/hostname", &self.host),
            step("/device_rp_uuid", &self.provider),
            step("/instance_uuid", instance),
        ]})
    }
}

/// A client that acts as Nova does.
pub struct Dance {
    client: tokio::sync::Mutex<Client>,
    path: String,
    place: Place,
}

/// Headers of a service that speaks for an admin.
pub fn headers() -> Vec<(&'static str, &'static str)> {
    vec![
        ("x-user-id", "bench"),
        ("x-project-id", PROJECT),
        ("x-roles", "admin,member,reader"),
        ("x-service-roles", "service"),
        ("x-service-token", "bench"),
    ]
}

impl Dance {
    /// Connects and makes the profile.
    pub async fn start(target: &Target, place: Place) -> Result<Self, Failure> {
        let client = Client::connect(&target.address, "bench").await?;
        let client = client.speaking("accelerator 2.1").saying(headers());
        let path = target.path.clone();
        let dance = Self { client: tokio::sync::Mutex::new(client), path, place };
        let there =
            dance.ask(Method::GET, &format!("/device_profiles?name={PROFILE}"), None).await?;
        if there["device_profiles"].as_array().is_none_or(Vec::is_empty) {
            let profile = json!([{"name": PROFILE, "groups": [{"resources:FPGA": "1"}]}]);
            dance.ask(Method::POST, "/device_profiles", Some(profile)).await?;
        }
        Ok(dance)
    }

    async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> Result<Value, Failure> {
        let path = format!("{}{path}", self.path);
        let body = body.map_or_else(String::new, |body| body.to_string());
        let mut client = self.client.lock().await;
        let reply = client.send(method.clone(), &path, "application/json", body).await?;
        if reply.status >= 300 {
            let said = String::from_utf8_lossy(&reply.body);
            return Err(Failure::Failed(format!("{method} {path}: {} {said}", reply.status)));
        }
        Ok(reply.json())
    }

    async fn make(&self) -> Result<String, Failure> {
        let body = json!({"device_profile_name": PROFILE});
        let made = self.ask(Method::POST, "/accelerator_requests", Some(body)).await?;
        Ok(made["arqs"][0]["uuid"].as_str().unwrap_or_default().to_owned())
    }

    async fn bind(&self, arq: &str) -> Result<String, Failure> {
        let instance = Uuid::new_v4().to_string();
        let body = self.place.bind(arq, &instance);
        // What was given up a moment ago waits for its host's word.
        let mut tries = TRIES;
        loop {
            match self.ask(Method::PATCH, "/accelerator_requests", Some(body.clone())).await {
                Ok(_) => return Ok(instance),
                Err(error) if tries == 0 => return Err(error),
                Err(_) => tries -= 1,
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn look(&self, instance: &str) -> Result<(), Failure> {
        let path = format!("/accelerator_requests?instance={instance}");
        let seen = self.ask(Method::GET, &path, None).await?;
        match seen["arqs"].as_array().map(Vec::as_slice) {
            Some([arq]) if arq["state"] == "Bound" => Ok(()),
            _ => Err(Failure::Failed(format!("an instance with one bound request has {seen}"))),
        }
    }

    async fn delete(&self, instance: &str) -> Result<(), Failure> {
        let path = format!("/accelerator_requests?instance={instance}");
        self.ask(Method::DELETE, &path, None).await.map(|_| ())
    }

    /// CPU of create, bind and delete together, and of looking up.
    pub async fn measure(
        &self,
        target: &Target,
        cycles: usize,
        others: usize,
    ) -> Result<Vec<Row>, Failure> {
        let (mut whole, mut looks) = (Vec::new(), Vec::new());
        let work = || async {
            for _ in 0..cycles {
                let instance = self.bind(&self.make().await?).await?;
                self.delete(&instance).await?;
            }
            Ok(())
        };
        work().await?;
        for _ in 0..ROUNDS {
            whole.push(target.cost(work()).await?.0);
        }
        let instance = self.bind(&self.make().await?).await?;
        let count = if others > 0 && cycles < LOOKS { cycles } else { cycles * LOOKS };
        let look = || async {
            for _ in 0..count {
                self.look(&instance).await?;
            }
            Ok(())
        };
        for _ in 0..ROUNDS {
            looks.push(target.cost(look()).await?.0);
        }
        self.delete(&instance).await?;
        let of = |what: &str| format!("{what}, {others} other requests");
        Ok(vec![
            row(of("create + bind + delete"), Some(3.0), &whole, cycles as f64),
            row(of("GET ?instance="), Some(0.2), &looks, count as f64),
        ])
    }

    /// Sees to it that there are so many requests of nobody.
    pub async fn have(&self, others: usize) -> Result<(), Failure> {
        let seen = self.ask(Method::GET, "/accelerator_requests", None).await?;
        for _ in seen["arqs"].as_array().map_or(0, Vec::len)..others {
            self.make().await?;
        }
        Ok(())
    }

    /// Deletes what [`Dance::have`] made, and the profile.
    pub async fn clean(&self) -> Result<(), Failure> {
        let seen = self.ask(Method::GET, "/accelerator_requests", None).await?;
        for arq in seen["arqs"].as_array().into_iter().flatten() {
            let uuid = arq["uuid"].as_str().unwrap_or_default();
            self.ask(Method::DELETE, &format!("/accelerator_requests?arqs={uuid}"), None).await?;
        }
        self.ask(Method::DELETE, &format!("/device_profiles/{PROFILE}"), None).await.map(|_| ())
    }

    /// Statements that its database runs for each of the four.
    pub async fn statements(
        &self,
        count: &Counter<'_>,
        others: usize,
    ) -> Result<Vec<Row>, Failure> {
        count.since().await?;
        let arq = self.make().await?;
        let make = count.since().await?;
        let instance = self.bind(&arq).await?;
        let bind = count.since().await?;
        self.look(&instance).await?;
        let look = count.since().await?;
        self.delete(&instance).await?;
        Ok(super::statements::rows([make, bind, look, count.since().await?], others))
    }
}
