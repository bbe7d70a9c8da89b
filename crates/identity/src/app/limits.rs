//! Unified limits, for services that enforce them with oslo.limit. Kilonova's own services do not read them.
//!
//! The enforcement model is `flat`: no limit depends on another one.

use kilonova_store::Tx;

use crate::db::limits::{self as rows, Limit, RegisteredLimit};
use crate::db::{catalog, projects};
use crate::{Error, Identity, REGION, new_id};

/// A registered limit as requested.
#[derive(Debug, Clone)]
pub(crate) struct NewRegisteredLimit {
    pub service: String,
    pub region: Option<String>,
    pub resource: String,
    pub default_limit: i64,
    pub description: Option<String>,
}

/// A change to a registered limit; `None` leaves an attribute unchanged.
#[derive(Debug, Clone)]
pub(crate) struct RegisteredLimitChange {
    pub service: Option<String>,
    pub region: Option<Option<String>>,
    pub resource: Option<String>,
    pub default_limit: Option<i64>,
    pub description: Option<Option<String>>,
}

/// A limit as requested.
#[derive(Debug, Clone)]
pub(crate) struct NewLimit {
    /// The project; `None` for the domain.
    pub project: Option<String>,
    pub service: String,
    pub region: Option<String>,
    pub resource: String,
    pub resource_limit: i64,
    pub description: Option<String>,
}

/// A change to a limit; `None` leaves an attribute unchanged.
#[derive(Debug, Clone)]
pub(crate) struct LimitChange {
    pub resource_limit: Option<i64>,
    pub description: Option<Option<String>>,
}

/// The names of the kinds of limits, for messages.
const REGISTERED_LIMIT: &str = "registered_limit";
const LIMIT: &str = "limit";

impl Identity {
    /// All registered limits.
    pub(crate) async fn registered_limits(&self) -> Result<Vec<RegisteredLimit>, Error> {
        self.read(|tx| Ok(rows::registered(tx)?)).await
    }

    /// One registered limit.
    pub(crate) async fn registered_limit(&self, id: &str) -> Result<RegisteredLimit, Error> {
        let id = id.to_owned();
        self.read(move |tx| registered(tx, &id)).await
    }

    /// Adds either all of the registered limits, or none.
    pub(crate) async fn create_registered_limits(
        &self,
        new: Vec<NewRegisteredLimit>,
    ) -> Result<Vec<RegisteredLimit>, Error> {
        let identity = self.clone();
        self.store
            .write(move |tx| {
                let make = |new: &NewRegisteredLimit| {
                    let place = (Some(new.service.as_str()), new.region.as_deref());
                    identity.check_place(tx, place, REGISTERED_LIMIT)?;
                    let made = RegisteredLimit {
                        id: new_id(),
                        service: new.service.clone(),
                        region: new.region.clone(),
                        resource: new.resource.clone(),
                        default_limit: new.default_limit,
                        description: new.description.clone(),
                    };
                    check_unique(tx, &made)?;
                    rows::insert_registered(tx, &made)?;
                    Ok(made)
                };
                new.iter().map(make).collect()
            })
            .await
    }

    /// Changes a registered limit that no limit overrides.
    pub(crate) async fn update_registered_limit(
        &self,
        id: &str,
        change: RegisteredLimitChange,
    ) -> Result<RegisteredLimit, Error> {
        let (identity, id) = (self.clone(), id.to_owned());
        self.store
            .write(move |tx| {
                let mut found = registered(tx, &id)?;
                refuse_overridden(tx, &id)?;
                let change = change.clone();
                let region = change.region.as_ref().and_then(Option::as_deref);
                identity.check_place(tx, (change.service.as_deref(), region), REGISTERED_LIMIT)?;
                found.service = change.service.unwrap_or(found.service);
                found.region = change.region.unwrap_or(found.region);
                found.resource = change.resource.unwrap_or(found.resource);
                found.default_limit = change.default_limit.unwrap_or(found.default_limit);
                found.description = change.description.unwrap_or(found.description);
                check_unique(tx, &found)?;
                rows::update_registered(tx, &found)?;
                Ok(found)
            })
            .await
    }

    /// Deletes a registered limit that no limit overrides.
    pub(crate) async fn delete_registered_limit(&self, id: &str) -> Result<(), Error> {
        let id = id.to_owned();
        self.store
            .write(move |tx| {
                refuse_overridden(tx, &id)?;
                match rows::delete_registered(tx, &id)? {
                    true => Ok(()),
                    false => Err(Error::NoLimit("registered limit", id.clone())),
                }
            })
            .await
    }

    /// All limits, or those of a project.
    pub(crate) async fn limits(&self, project: Option<String>) -> Result<Vec<Limit>, Error> {
        self.read(move |tx| match &project {
            Some(project) => Ok(rows::of_project(tx, project)?),
            None => Ok(rows::all(tx)?),
        })
        .await
    }

    /// One limit.
    pub(crate) async fn limit(&self, id: &str) -> Result<Limit, Error> {
        let id = id.to_owned();
        self.read(move |tx| limit(tx, &id)).await
    }

    /// Adds either all of the limits, or none.
    pub(crate) async fn create_limits(&self, new: Vec<NewLimit>) -> Result<Vec<Limit>, Error> {
        let identity = self.clone();
        self.store
            .write(move |tx| {
                let make = |new: &NewLimit| {
                    let place = (Some(new.service.as_str()), new.region.as_deref());
                    identity.check_place(tx, place, LIMIT)?;
                    if let Some(id) = &new.project
                        && projects::by_id(tx, id)?.is_none()
                    {
                        return Err(Error::Missing("project_id", LIMIT));
                    }
                    let region = new.region.as_deref();
                    let Some(registered) =
                        rows::registered_for(tx, &new.service, &new.resource, region)?
                    else {
                        return Err(Error::Refused(
                            "Unable to create a limit that has no corresponding registered limit."
                                .into(),
                        ));
                    };
                    let made = Limit {
                        id: new_id(),
                        registered: registered.id,
                        project: new.project.clone(),
                        service: registered.service,
                        region: registered.region,
                        resource: registered.resource,
                        resource_limit: new.resource_limit,
                        description: new.description.clone(),
                    };
                    rows::insert(tx, &made).map_err(|error| match error {
                        kilonova_store::Error::Unique(_) => Error::DuplicateLimit(LIMIT),
                        other => Error::Store(other),
                    })?;
                    Ok(made)
                };
                new.iter().map(make).collect()
            })
            .await
    }

    /// Changes a limit.
    pub(crate) async fn update_limit(&self, id: &str, change: LimitChange) -> Result<Limit, Error> {
        let id = id.to_owned();
        self.store
            .write(move |tx| {
                let mut found = limit(tx, &id)?;
                found.resource_limit = change.resource_limit.unwrap_or(found.resource_limit);
                found.description = change.description.clone().unwrap_or(found.description);
                rows::update(tx, &found)?;
                Ok(found)
            })
            .await
    }

    /// Deletes a limit.
    pub(crate) async fn delete_limit(&self, id: &str) -> Result<(), Error> {
        let id = id.to_owned();
        self.store
            .write(move |tx| match rows::delete(tx, &id)? {
                true => Ok(()),
                false => Err(Error::NoLimit("limit", id.clone())),
            })
            .await
    }

    /// Checks that the service and the region of a request exist.
    fn check_place(
        &self,
        tx: &mut Tx<'_>,
        (service, region): (Option<&str>, Option<&str>),
        kind: &'static str,
    ) -> Result<(), Error> {
        let is_built_in = |id: &str| self.catalog().iter().any(|entry| entry.id() == id);
        if let Some(id) = service
            && !is_built_in(id)
            && catalog::service(tx, id)?.is_none()
        {
            return Err(Error::Missing("service_id", kind));
        }
        match region {
            Some(id) if id != REGION && catalog::region(tx, id)?.is_none() => {
                Err(Error::Missing("region_id", kind))
            }
            _ => Ok(()),
        }
    }
}

fn registered(tx: &mut Tx<'_>, id: &str) -> Result<RegisteredLimit, Error> {
    let found = rows::registered_by_id(tx, id)?;
    found.ok_or_else(|| Error::NoLimit("registered limit", id.to_owned()))
}

fn limit(tx: &mut Tx<'_>, id: &str) -> Result<Limit, Error> {
    rows::by_id(tx, id)?.ok_or_else(|| Error::NoLimit("limit", id.to_owned()))
}

fn refuse_overridden(tx: &mut Tx<'_>, id: &str) -> Result<(), Error> {
    match rows::is_overridden(tx, id)? {
        true => Err(Error::Refused(format!(
            "Unable to update or delete registered limit {id} because there are project limits \
             associated with it."
        ))),
        false => Ok(()),
    }
}

/// Checks that no other registered limit is for the same resource. The unique key decides between
/// concurrent requests.
fn check_unique(tx: &mut Tx<'_>, limit: &RegisteredLimit) -> Result<(), Error> {
    let region = limit.region.as_deref();
    match rows::registered_for(tx, &limit.service, &limit.resource, region)? {
        Some(other) if other.id != limit.id => Err(Error::DuplicateLimit(REGISTERED_LIMIT)),
        _ => Ok(()),
    }
}
