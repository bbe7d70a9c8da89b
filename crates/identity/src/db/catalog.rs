//! Registered services, endpoints and regions.

use kilonova_store::{Error, Row, Tx, params, statements};
use serde_json::{Map, Value};

use super::{object, text};

/// A registered service.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub id: String,
    pub kind: String,
    pub name: Option<String>,
    pub description: Option<String>,
    pub enabled: bool,
    pub extra: Map<String, Value>,
}

/// An endpoint of a registered service.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    pub id: String,
    pub service: String,
    pub interface: String,
    pub region: Option<String>,
    pub url: String,
    pub enabled: bool,
    pub extra: Map<String, Value>,
}

/// A registered region.
#[derive(Debug, Clone)]
pub(crate) struct Region {
    pub id: String,
    pub description: String,
    pub parent: Option<String>,
    pub extra: Map<String, Value>,
}

/// Selects [`Service`]s.
macro_rules! select_service {
    () => {
        "SELECT id, type, name, description, enabled, extra FROM identity_services"
    };
}

/// Selects [`Endpoint`]s.
macro_rules! select_endpoint {
    () => {
        "SELECT id, service_id, interface, region_id, url, enabled, extra FROM \
         identity_endpoints"
    };
}

/// Selects [`Region`]s.
macro_rules! select_region {
    () => {
        "SELECT id, description, parent_id, extra FROM identity_regions"
    };
}

statements! {
    /// Adds a service.
    INSERT_SERVICE = "INSERT INTO identity_services (id, type, name, description, enabled, extra)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    /// Updates all columns but the id.
    UPDATE_SERVICE = "UPDATE identity_services SET type = ?2, name = ?3, description = ?4,
        enabled = ?5, extra = ?6 WHERE id = ?1";
    /// One service by id.
    SERVICE = concat!(select_service!(), " WHERE id = ?1");
    /// All services; there are few.
    SERVICES = concat!(select_service!(), " ORDER BY type, id");
    /// Deletes a service and, by cascade, its endpoints.
    DELETE_SERVICE = "DELETE FROM identity_services WHERE id = ?1";
    /// Adds an endpoint.
    INSERT_ENDPOINT = "INSERT INTO identity_endpoints
        (id, service_id, interface, region_id, url, enabled, extra)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    /// Updates all columns but the id.
    UPDATE_ENDPOINT = "UPDATE identity_endpoints SET service_id = ?2, interface = ?3,
        region_id = ?4, url = ?5, enabled = ?6, extra = ?7 WHERE id = ?1";
    /// One endpoint by id.
    ENDPOINT = concat!(select_endpoint!(), " WHERE id = ?1");
    /// All endpoints; there are few.
    ENDPOINTS = concat!(select_endpoint!(), " ORDER BY service_id, id");
    /// Any endpoint of a region.
    IN_REGION = "SELECT 1 FROM identity_endpoints WHERE region_id = ?1 LIMIT 1";
    /// Deletes an endpoint.
    DELETE_ENDPOINT = "DELETE FROM identity_endpoints WHERE id = ?1";
    /// Adds a region.
    INSERT_REGION = "INSERT INTO identity_regions (id, description, parent_id, extra)
        VALUES (?1, ?2, ?3, ?4)";
    /// Updates all columns but the id.
    UPDATE_REGION = "UPDATE identity_regions SET description = ?2, parent_id = ?3, extra = ?4
        WHERE id = ?1";
    /// One region by id.
    REGION = concat!(select_region!(), " WHERE id = ?1");
    /// All regions; there are few.
    REGIONS = concat!(select_region!(), " ORDER BY id");
    /// Locks a region against its deletion and moves.
    TOUCH_REGION = "UPDATE identity_regions SET parent_id = parent_id WHERE id = ?1";
    /// Deletes a region.
    DELETE_REGION = "DELETE FROM identity_regions WHERE id = ?1";
}

fn service_of(row: &Row) -> Result<Service, Error> {
    Ok(Service {
        id: row.string("id")?,
        kind: row.string("type")?,
        name: row.string_opt("name")?,
        description: row.string_opt("description")?,
        enabled: row.bool("enabled")?,
        extra: object(row.text("extra")?)?,
    })
}

fn service_values(service: &Service) -> Vec<kilonova_store::Value> {
    params![
        &service.id,
        &service.kind,
        service.name.clone(),
        service.description.clone(),
        service.enabled,
        text(&service.extra),
    ]
    .to_vec()
}

/// Adds a service.
pub(crate) fn insert_service(tx: &mut Tx<'_>, service: &Service) -> Result<(), Error> {
    tx.execute(INSERT_SERVICE, &service_values(service)).map(|_| ())
}

/// Updates a service.
pub(crate) fn update_service(tx: &mut Tx<'_>, service: &Service) -> Result<(), Error> {
    tx.execute(UPDATE_SERVICE, &service_values(service)).map(|_| ())
}

/// One service by id.
pub(crate) fn service(tx: &mut Tx<'_>, id: &str) -> Result<Option<Service>, Error> {
    tx.row(SERVICE, params![id])?.as_ref().map(service_of).transpose()
}

/// All services.
pub(crate) fn services(tx: &mut Tx<'_>) -> Result<Vec<Service>, Error> {
    tx.rows(SERVICES, params![])?.iter().map(service_of).collect()
}

/// Deletes a service and its endpoints; returns false if it does not exist.
pub(crate) fn delete_service(tx: &mut Tx<'_>, id: &str) -> Result<bool, Error> {
    Ok(tx.execute(DELETE_SERVICE, params![id])? > 0)
}

fn endpoint_of(row: &Row) -> Result<Endpoint, Error> {
    Ok(Endpoint {
        id: row.string("id")?,
        service: row.string("service_id")?,
        interface: row.string("interface")?,
        region: row.string_opt("region_id")?,
        url: row.string("url")?,
        enabled: row.bool("enabled")?,
        extra: object(row.text("extra")?)?,
    })
}

fn endpoint_values(endpoint: &Endpoint) -> Vec<kilonova_store::Value> {
    params![
        &endpoint.id,
        &endpoint.service,
        &endpoint.interface,
        endpoint.region.clone(),
        &endpoint.url,
        endpoint.enabled,
        text(&endpoint.extra),
    ]
    .to_vec()
}

/// Adds an endpoint.
pub(crate) fn insert_endpoint(tx: &mut Tx<'_>, endpoint: &Endpoint) -> Result<(), Error> {
    tx.execute(INSERT_ENDPOINT, &endpoint_values(endpoint)).map(|_| ())
}

/// Updates an endpoint.
pub(crate) fn update_endpoint(tx: &mut Tx<'_>, endpoint: &Endpoint) -> Result<(), Error> {
    tx.execute(UPDATE_ENDPOINT, &endpoint_values(endpoint)).map(|_| ())
}

/// One endpoint by id.
pub(crate) fn endpoint(tx: &mut Tx<'_>, id: &str) -> Result<Option<Endpoint>, Error> {
    tx.row(ENDPOINT, params![id])?.as_ref().map(endpoint_of).transpose()
}

/// All endpoints.
pub(crate) fn endpoints(tx: &mut Tx<'_>) -> Result<Vec<Endpoint>, Error> {
    tx.rows(ENDPOINTS, params![])?.iter().map(endpoint_of).collect()
}

/// True if a region has an endpoint.
pub(crate) fn region_is_used(tx: &mut Tx<'_>, region: &str) -> Result<bool, Error> {
    Ok(tx.row(IN_REGION, params![region])?.is_some())
}

/// Deletes an endpoint; returns false if it does not exist.
pub(crate) fn delete_endpoint(tx: &mut Tx<'_>, id: &str) -> Result<bool, Error> {
    Ok(tx.execute(DELETE_ENDPOINT, params![id])? > 0)
}

fn region_of(row: &Row) -> Result<Region, Error> {
    Ok(Region {
        id: row.string("id")?,
        description: row.string("description")?,
        parent: row.string_opt("parent_id")?,
        extra: object(row.text("extra")?)?,
    })
}

/// Adds a region.
pub(crate) fn insert_region(tx: &mut Tx<'_>, region: &Region) -> Result<(), Error> {
    let values =
        params![&region.id, &region.description, region.parent.clone(), text(&region.extra)];
    tx.execute(INSERT_REGION, values).map(|_| ())
}

/// Updates a region.
pub(crate) fn update_region(tx: &mut Tx<'_>, region: &Region) -> Result<(), Error> {
    let values =
        params![&region.id, &region.description, region.parent.clone(), text(&region.extra)];
    tx.execute(UPDATE_REGION, values).map(|_| ())
}

/// One region by id.
pub(crate) fn region(tx: &mut Tx<'_>, id: &str) -> Result<Option<Region>, Error> {
    tx.row(REGION, params![id])?.as_ref().map(region_of).transpose()
}

/// Locks a region until the end of the transaction, so that nobody deletes or moves it meanwhile. Returns false if it does
/// not exist.
pub(crate) fn touch_region(tx: &mut Tx<'_>, id: &str) -> Result<bool, Error> {
    Ok(tx.execute(TOUCH_REGION, params![id])? > 0)
}

/// All regions.
pub(crate) fn regions(tx: &mut Tx<'_>) -> Result<Vec<Region>, Error> {
    tx.rows(REGIONS, params![])?.iter().map(region_of).collect()
}

/// Deletes a region.
pub(crate) fn delete_region(tx: &mut Tx<'_>, id: &str) -> Result<(), Error> {
    tx.execute(DELETE_REGION, params![id]).map(|_| ())
}
