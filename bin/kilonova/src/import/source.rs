//! The other Placement, asked as any client asks it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, StatusCode};
use kilonova_ids::{ConsumerId, ProviderId};
use kilonova_keystone::{Error, Http, Session};
use kilonova_placement::app::import::{ConsumerCopy, Inventory, ProviderCopy};
use serde_json::Value;

use crate::failure::Failure;

const X_AUTH_TOKEN: HeaderName = HeaderName::from_static("x-auth-token");
const VERSION: HeaderName = HeaderName::from_static("openstack-api-version");
const TIMEOUT: Duration = Duration::from_secs(300);
const LARGEST: usize = 512 * 1024 * 1024;
/// A long copy shall not end because a worker over there was replaced.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(250);
/// Below this there are no consumer generations, and what is written there cannot be told apart.
const OLDEST: u32 = 28;
const NEWEST: u32 = 39;

/// How the other one lets us in.
pub enum Door {
    /// A token, or under noauth2 a user's name.
    Token(HeaderValue),
    /// A login, renewed as needed.
    Session(Arc<Session>),
}

/// The other Placement.
pub struct Source {
    http: Http,
    url: String,
    door: Door,
    minor: u32,
}

/// A client for the other Placement and its Keystone.
pub fn client(cafile: Option<&Path>) -> Result<Http, Failure> {
    Http::new(cafile, TIMEOUT, LARGEST).map_err(|e| Failure::Refused(e.to_string()))
}

impl Source {
    /// Finds out which versions it speaks.
    pub async fn open(http: Http, url: &str, door: Door) -> Result<Self, Failure> {
        let url = url.trim_end_matches('/').to_owned();
        let mut source = Self { http, url, door, minor: 0 };
        let root = source.ask("/").await?;
        let newest = root["versions"][0]["max_version"].as_str().and_then(|v| v.strip_prefix("1."));
        let newest: u32 = newest.and_then(|minor| minor.parse().ok()).ok_or_else(|| {
            Failure::Refused(format!("{} does not answer as a Placement does", source.url))
        })?;
        if newest < OLDEST {
            return Err(Failure::Refused(format!(
                "{} speaks Placement 1.{newest}; the import needs 1.{OLDEST} (Rocky) or newer",
                source.url
            )));
        }
        source.minor = newest.min(NEWEST);
        Ok(source)
    }

    async fn ask(&self, path: &str) -> Result<Value, Failure> {
        let url = format!("{}{path}", self.url);
        let token = match &self.door {
            Door::Token(token) => token.clone(),
            Door::Session(session) => {
                let held = session.token().await.map_err(|e| Failure::Failed(e.to_string()))?;
                held.text.clone()
            }
        };
        let version = HeaderValue::try_from(format!("placement 1.{}", self.minor))
            .map_err(|e| Failure::failed("cannot ask", e))?;
        let headers = [(X_AUTH_TOKEN, token), (VERSION, version)];
        let mut tries = 1;
        let answer = loop {
            match self.http.send(Method::GET, &url, &headers, None).await {
                Ok(answer) => break answer,
                Err(Error::Unreachable { .. }) if tries < TRIES => {
                    tokio::time::sleep(PAUSE * tries).await;
                    tries += 1;
                }
                Err(error) => return Err(Failure::Failed(error.to_string())),
            }
        };
        match answer.status {
            StatusCode::OK => Ok(answer.json()),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(Failure::Refused(format!(
                "{url} answered {}; the import needs a token of an admin",
                answer.status
            ))),
            other => Err(Failure::Failed(format!("{url} answered {other}"))),
        }
    }

    /// The names of its classes and of its custom traits.
    pub async fn names(&self) -> Result<(Vec<String>, Vec<String>), Failure> {
        let classes = self.ask("/resource_classes").await?;
        let classes = each(&classes["resource_classes"]).filter_map(|c| text(&c["name"])).collect();
        let traits = self.ask("/traits?name=startswith:CUSTOM_").await?;
        Ok((classes, each(&traits["traits"]).filter_map(text).collect()))
    }

    /// Its providers and their generations, without what hangs on them.
    pub async fn providers(&self) -> Result<Vec<ProviderCopy>, Failure> {
        let list = self.ask("/resource_providers").await?;
        each(&list["resource_providers"])
            .map(|one| {
                let read = || {
                    Some(ProviderCopy {
                        id: id(&one["uuid"])?,
                        name: text(&one["name"])?,
                        parent: id(&one["parent_provider_uuid"]),
                        root: id(&one["root_provider_uuid"])?,
                        generation: one["generation"].as_i64()?,
                        inventories: BTreeMap::new(),
                        traits: BTreeSet::new(),
                        aggregates: BTreeSet::new(),
                    })
                };
                read().ok_or_else(|| odd("provider", one))
            })
            .collect()
    }

    /// Fills in what a provider has; returns who holds something of it.
    pub async fn furnish(&self, copy: &mut ProviderCopy) -> Result<BTreeSet<ConsumerId>, Failure> {
        let below = format!("/resource_providers/{}", copy.id);
        let have = self.ask(&format!("{below}/inventories")).await?;
        for (class, one) in have["inventories"].as_object().into_iter().flatten() {
            let inventory = inventory(one).ok_or_else(|| odd("inventory", one))?;
            copy.inventories.insert(class.clone(), inventory);
        }
        let have = self.ask(&format!("{below}/traits")).await?;
        copy.traits = each(&have["traits"]).filter_map(text).collect();
        let have = self.ask(&format!("{below}/aggregates")).await?;
        copy.aggregates =
            each(&have["aggregates"]).filter_map(|one| one.as_str()?.parse().ok()).collect();
        let held = self.ask(&format!("{below}/allocations")).await?;
        let consumers = held["allocations"].as_object().into_iter().flatten();
        consumers
            .map(|(consumer, one)| consumer.parse().map_err(|_| odd("consumer", one)))
            .collect()
    }

    /// A consumer; nothing when it holds nothing any more.
    pub async fn consumer(&self, consumer: ConsumerId) -> Result<Option<ConsumerCopy>, Failure> {
        let body = self.ask(&format!("/allocations/{consumer}")).await?;
        let mut holds = BTreeMap::new();
        for (provider, one) in body["allocations"].as_object().into_iter().flatten() {
            let provider: ProviderId = provider.parse().map_err(|_| odd("allocation", one))?;
            for (class, amount) in one["resources"].as_object().into_iter().flatten() {
                let amount = amount.as_i64().ok_or_else(|| odd("allocation", one))?;
                holds.insert((provider, class.clone()), amount);
            }
        }
        if holds.is_empty() {
            return Ok(None);
        }
        let read = || {
            Some(ConsumerCopy {
                id: consumer,
                generation: body["consumer_generation"].as_i64()?,
                consumer_type: text(&body["consumer_type"]).filter(|kind| kind != "unknown"),
                project_id: text(&body["project_id"])?,
                user_id: text(&body["user_id"])?,
                holds,
            })
        };
        read().ok_or_else(|| odd("consumer", &body)).map(Some)
    }
}

fn inventory(one: &Value) -> Option<Inventory> {
    Some(Inventory {
        total: one["total"].as_i64()?,
        reserved: one["reserved"].as_i64()?,
        min_unit: one["min_unit"].as_i64()?,
        max_unit: one["max_unit"].as_i64()?,
        step_size: one["step_size"].as_i64()?,
        allocation_ratio: one["allocation_ratio"].as_f64()?,
        used: 0,
    })
}

fn each(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn id(value: &Value) -> Option<ProviderId> {
    value.as_str()?.parse().ok()
}

fn odd(what: &str, body: &Value) -> Failure {
    Failure::Failed(format!("the other Placement shows a {what} that makes no sense: {body}"))
}
