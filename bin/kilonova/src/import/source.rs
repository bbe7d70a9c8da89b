//! A client of the other Placement's API.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, StatusCode};
use kilonova_ids::{ConsumerId, ProviderId, ResourceClass};
use kilonova_keystone::{Error, Http, Session};
use kilonova_placement::app::import::{ConsumerCopy, Inventory, ProviderCopy};
use serde_json::Value;

use crate::failure::Failure;

const X_AUTH_TOKEN: HeaderName = HeaderName::from_static("x-auth-token");
const VERSION: HeaderName = HeaderName::from_static("openstack-api-version");
const TIMEOUT: Duration = Duration::from_secs(300);
const LARGEST: usize = 512 * 1024 * 1024;
/// Attempts per request: a long copy must survive a restart of a worker there.
const ATTEMPTS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(250);
/// Older versions have no consumer generations, so changes there would go unnoticed.
const OLDEST: u32 = 28;
const NEWEST: u32 = 39;

/// Authentication at the other Placement.
pub enum SourceAuth {
    /// A token, or a user's name with noauth2.
    Token(HeaderValue),
    /// A login, renewed as needed.
    Session(Arc<Session>),
}

/// The other Placement.
pub struct Source {
    http: Http,
    url: String,
    auth: SourceAuth,
    minor: u32,
}

/// A client for the other Placement and its Keystone.
pub fn client(cafile: Option<&Path>) -> Result<Http, Failure> {
    Http::new(cafile, TIMEOUT, LARGEST).map_err(|e| Failure::Refused(e.to_string()))
}

impl Source {
    /// Connects and negotiates the microversion.
    pub async fn open(http: Http, url: &str, auth: SourceAuth) -> Result<Self, Failure> {
        let url = url.trim_end_matches('/').to_owned();
        let mut source = Self { http, url, auth, minor: 0 };
        // Nothing has been changed yet.
        let root = source.ask("/").await.map_err(|why| Failure::Refused(why.to_string()))?;
        let newest = root["versions"][0]["max_version"].as_str().and_then(|v| v.strip_prefix("1."));
        let newest: u32 = newest
            .and_then(|minor| minor.parse().ok())
            .ok_or_else(|| Failure::Refused(format!("{} is not a Placement API", source.url)))?;
        if newest < OLDEST {
            return Err(Failure::Refused(format!(
                "{} supports Placement 1.{newest}; the import requires 1.{OLDEST} (Rocky) or newer",
                source.url
            )));
        }
        source.minor = newest.min(NEWEST);
        // The versions need no token, but this does.
        source.ask("/resource_classes").await?;
        Ok(source)
    }

    async fn ask(&self, path: &str) -> Result<Value, Failure> {
        let url = format!("{}{path}", self.url);
        let token = match &self.auth {
            SourceAuth::Token(token) => token.clone(),
            SourceAuth::Session(session) => {
                let held = session.token().await.map_err(|e| Failure::Failed(e.to_string()))?;
                held.text.clone()
            }
        };
        let version = HeaderValue::try_from(format!("placement 1.{}", self.minor))
            .map_err(|e| Failure::failed("cannot send a request", e))?;
        let headers = [(X_AUTH_TOKEN, token), (VERSION, version)];
        let mut attempts = 1;
        let answer = loop {
            match self.http.send(Method::GET, &url, &headers, None).await {
                Ok(answer) => break answer,
                Err(Error::Unreachable { .. }) if attempts < ATTEMPTS => {
                    tokio::time::sleep(PAUSE * attempts).await;
                    attempts += 1;
                }
                Err(error) => return Err(Failure::Failed(error.to_string())),
            }
        };
        match answer.status {
            StatusCode::OK => Ok(answer.json()),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(Failure::Refused(format!(
                "{url} answered {}; the import requires an admin's token",
                answer.status
            ))),
            other => Err(Failure::Failed(format!("{url} answered {other}"))),
        }
    }

    /// The names of its resource classes and custom traits.
    pub async fn names(&self) -> Result<(Vec<ResourceClass>, Vec<String>), Failure> {
        let classes = self.ask("/resource_classes").await?;
        let classes = each(&classes["resource_classes"])
            .filter_map(|one| one["name"].as_str())
            .map(self::class)
            .collect::<Result<_, _>>()?;
        let traits = self.ask("/traits?name=startswith:CUSTOM_").await?;
        Ok((classes, each(&traits["traits"]).filter_map(text).collect()))
    }

    /// Its providers with generations, without their details.
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
                read().ok_or_else(|| unexpected("provider", one))
            })
            .collect()
    }

    /// Reads a provider's details; returns the consumers with allocations on it.
    pub async fn read_details(
        &self,
        copy: &mut ProviderCopy,
    ) -> Result<BTreeSet<ConsumerId>, Failure> {
        let below = format!("/resource_providers/{}", copy.id);
        let have = self.ask(&format!("{below}/inventories")).await?;
        for (class, one) in have["inventories"].as_object().into_iter().flatten() {
            let inventory = inventory(one).ok_or_else(|| unexpected("inventory", one))?;
            copy.inventories.insert(self::class(class)?, inventory);
        }
        let have = self.ask(&format!("{below}/traits")).await?;
        copy.traits = each(&have["traits"]).filter_map(text).collect();
        let have = self.ask(&format!("{below}/aggregates")).await?;
        copy.aggregates =
            each(&have["aggregates"]).filter_map(|one| one.as_str()?.parse().ok()).collect();
        let held = self.ask(&format!("{below}/allocations")).await?;
        let consumers = held["allocations"].as_object().into_iter().flatten();
        consumers
            .map(|(consumer, one)| consumer.parse().map_err(|_| unexpected("consumer", one)))
            .collect()
    }

    /// A consumer; `None` if it no longer has allocations.
    pub async fn consumer(&self, consumer: ConsumerId) -> Result<Option<ConsumerCopy>, Failure> {
        let body = self.ask(&format!("/allocations/{consumer}")).await?;
        let mut allocations = BTreeMap::new();
        for (provider, one) in body["allocations"].as_object().into_iter().flatten() {
            let provider: ProviderId =
                provider.parse().map_err(|_| unexpected("allocation", one))?;
            for (class, amount) in one["resources"].as_object().into_iter().flatten() {
                let amount = amount.as_i64().ok_or_else(|| unexpected("allocation", one))?;
                allocations.insert((provider, self::class(class)?), amount);
            }
        }
        if allocations.is_empty() {
            return Ok(None);
        }
        let read = || {
            Some(ConsumerCopy {
                id: consumer,
                generation: body["consumer_generation"].as_i64()?,
                consumer_type: text(&body["consumer_type"]).filter(|kind| kind != "unknown"),
                project_id: text(&body["project_id"])?,
                user_id: text(&body["user_id"])?,
                allocations,
            })
        };
        read().ok_or_else(|| unexpected("consumer", &body)).map(Some)
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

fn class(name: &str) -> Result<ResourceClass, Failure> {
    ResourceClass::parse(name).map_err(|_| unexpected("resource class", &name.into()))
}

fn unexpected(what: &str, body: &Value) -> Failure {
    Failure::Failed(format!("the other Placement returned an invalid {what}: {body}"))
}
