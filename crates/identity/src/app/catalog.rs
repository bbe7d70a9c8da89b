//! Registered services, endpoints and regions. The built-in entries are computed from the
//! configuration and cannot be created, changed or deleted.

use kilonova_store::Tx;
use kilonova_wire::text::check_name;

use super::{Fields, extras, flag, text};
use crate::catalog;
use crate::db::catalog::{self as rows, Endpoint, Region, Service};
use crate::{Error, Identity, REGION, new_id};

const LONGEST: usize = 255;
/// Maximum number of characters in a URL.
const LONGEST_URL: usize = 2048;
const SERVICE: [&str; 6] = ["id", "type", "name", "description", "enabled", "links"];
const ENDPOINT: [&str; 9] = [
    "id",
    "service_id",
    "interface",
    "region",
    "region_id",
    "url",
    "enabled",
    "links",
    "legacy_endpoint_id",
];
const REGION_FIELDS: [&str; 4] = ["id", "description", "parent_region_id", "links"];

/// All registered entries.
#[derive(Debug, Clone, Default)]
pub(crate) struct Registered {
    pub services: Vec<Service>,
    pub endpoints: Vec<Endpoint>,
}

impl Identity {
    /// The registered services and endpoints.
    pub(crate) async fn registered(&self) -> Result<Registered, Error> {
        self.read(|tx| {
            Ok(Registered { services: rows::services(tx)?, endpoints: rows::endpoints(tx)? })
        })
        .await
    }

    pub(crate) async fn service(&self, id: &str) -> Result<Service, Error> {
        let id = id.to_owned();
        self.read(move |tx| service(tx, &id)).await
    }

    pub(crate) async fn create_service(&self, fields: &Fields) -> Result<Service, Error> {
        let mut made = Service {
            id: new_id(),
            kind: String::new(),
            name: None,
            description: None,
            enabled: true,
            extra: Fields::new(),
        };
        apply_service(&mut made, fields)?;
        self.store
            .write(move |tx| {
                rows::insert_service(tx, &made)?;
                Ok(made.clone())
            })
            .await
    }

    pub(crate) async fn update_service(&self, id: &str, fields: Fields) -> Result<Service, Error> {
        self.refuse_built_in(id)?;
        let id = id.to_owned();
        self.store
            .write(move |tx| {
                let mut found = service(tx, &id)?;
                apply_service(&mut found, &fields)?;
                rows::update_service(tx, &found)?;
                Ok(found)
            })
            .await
    }

    pub(crate) async fn delete_service(&self, id: &str) -> Result<(), Error> {
        self.refuse_built_in(id)?;
        let id = id.to_owned();
        self.store
            .write(move |tx| Error::unless_found(rows::delete_service(tx, &id)?, "service", &id))
            .await
    }

    pub(crate) async fn endpoint(&self, id: &str) -> Result<Endpoint, Error> {
        let id = id.to_owned();
        self.read(move |tx| endpoint(tx, &id)).await
    }

    pub(crate) async fn create_endpoint(&self, fields: Fields) -> Result<Endpoint, Error> {
        let identity = self.clone();
        let made = Endpoint {
            id: new_id(),
            service: String::new(),
            interface: String::new(),
            region: None,
            url: String::new(),
            enabled: true,
            extra: Fields::new(),
        };
        self.store
            .write(move |tx| {
                let mut made = made.clone();
                identity.apply_endpoint(tx, &mut made, &fields)?;
                rows::insert_endpoint(tx, &made)?;
                Ok(made)
            })
            .await
    }

    pub(crate) async fn update_endpoint(
        &self,
        id: &str,
        fields: Fields,
    ) -> Result<Endpoint, Error> {
        self.refuse_built_in(id)?;
        let (identity, id) = (self.clone(), id.to_owned());
        self.store
            .write(move |tx| {
                let mut found = endpoint(tx, &id)?;
                identity.apply_endpoint(tx, &mut found, &fields)?;
                rows::update_endpoint(tx, &found)?;
                Ok(found)
            })
            .await
    }

    pub(crate) async fn delete_endpoint(&self, id: &str) -> Result<(), Error> {
        self.refuse_built_in(id)?;
        let id = id.to_owned();
        self.store
            .write(move |tx| Error::unless_found(rows::delete_endpoint(tx, &id)?, "endpoint", &id))
            .await
    }

    /// Refuses a change to a built-in service or endpoint.
    fn refuse_built_in(&self, id: &str) -> Result<(), Error> {
        let catalog = self.catalog();
        let built_in = catalog.iter().find(|entry| {
            entry.id() == id || entry.endpoints("").iter().any(|(endpoint, ..)| endpoint == id)
        });
        built_in.map_or(Ok(()), |entry| Err(built_in_service(&entry.service_type)))
    }

    fn apply_endpoint(
        &self,
        tx: &mut Tx<'_>,
        made: &mut Endpoint,
        fields: &Fields,
    ) -> Result<(), Error> {
        let new = made.service.is_empty();
        if let Some(id) = text(fields, "service_id")? {
            self.refuse_built_in(&id)?;
            if rows::service(tx, &id)?.is_none() {
                return Err(Error::Missing("endpoint service_id", "service table"));
            }
            made.service = id;
        }
        if let Some(interface) = text(fields, "interface")? {
            if !catalog::INTERFACES.contains(&interface.as_str()) {
                return Err(Error::Invalid(
                    "interface must be one of admin, internal and public.".into(),
                ));
            }
            made.interface = interface;
        }
        if let Some(url) = text(fields, "url")? {
            check_url(&url)?;
            made.url = url;
        }
        if let Some(enabled) = flag(fields, "enabled")? {
            made.enabled = enabled;
        }
        match (text(fields, "region_id")?, text(fields, "region")?) {
            (Some(id), _) => {
                if id != REGION && !rows::touch_region(tx, &id)? {
                    return Err(Error::Missing("endpoint region_id", "region table"));
                }
                made.region = Some(id);
            }
            // Older clients name a region in `region` and expect the region to be created.
            (None, Some(id)) => {
                if id != REGION && !rows::touch_region(tx, &id)? {
                    let mut region = new_region(id.clone());
                    apply_region(&mut region, &Fields::new())?;
                    rows::insert_region(tx, &region)?;
                }
                made.region = Some(id);
            }
            (None, None) if new => made.region = None,
            (None, None) => {
                let cleared = ["region", "region_id"].iter().any(|key| fields.contains_key(*key));
                if cleared {
                    made.region = None;
                }
            }
        }
        for (value, key) in
            [(&made.service, "service_id"), (&made.interface, "interface"), (&made.url, "url")]
        {
            if value.is_empty() {
                return Err(Error::Missing(key, "endpoint"));
            }
        }
        extras(&mut made.extra, fields, &ENDPOINT)
    }

    pub(crate) async fn regions(&self) -> Result<Vec<Region>, Error> {
        self.read(|tx| Ok(rows::regions(tx)?)).await
    }

    pub(crate) async fn region(&self, id: &str) -> Result<Region, Error> {
        let id = id.to_owned();
        self.read(move |tx| region(tx, &id)).await
    }

    pub(crate) async fn create_region(
        &self,
        id: Option<String>,
        fields: Fields,
    ) -> Result<Region, Error> {
        let named = text(&fields, "id")?.filter(|id| !id.is_empty());
        let id = match (id, named) {
            (Some(path), Some(body)) if path != body => {
                return Err(Error::Invalid(format!(
                    "Conflicting region IDs specified: \"{path}\" != \"{body}\""
                )));
            }
            (Some(id), _) | (None, Some(id)) => id,
            (None, None) => new_id(),
        };
        if id == REGION {
            return Err(Error::Duplicate("region", id));
        }
        let mut made = new_region(id);
        apply_region(&mut made, &fields)?;
        self.store
            .write(move |tx| {
                check_parent(tx, &made)?;
                rows::insert_region(tx, &made).map_err(Error::taken("region", &made.id))?;
                Ok(made.clone())
            })
            .await
    }

    pub(crate) async fn update_region(&self, id: &str, fields: Fields) -> Result<Region, Error> {
        refuse_own_region(id)?;
        let id = id.to_owned();
        self.store
            .write(move |tx| {
                let mut found = region(tx, &id)?;
                apply_region(&mut found, &fields)?;
                check_parent(tx, &found)?;
                rows::update_region(tx, &found)?;
                Ok(found)
            })
            .await
    }

    /// Deletes a region and the regions below it, unless one of them has endpoints (`delete_region` of
    /// `keystone/catalog/backends/sql.py`). An endpoint or a region that another transaction adds below one of them has
    /// locked that one's row, so one of the two transactions sees the other's.
    pub(crate) async fn delete_region(&self, id: &str) -> Result<(), Error> {
        refuse_own_region(id)?;
        let id = id.to_owned();
        self.store
            .write(move |tx| {
                region(tx, &id)?;
                let doomed = with_descendants(&id, &rows::regions(tx)?);
                for one in &doomed {
                    if rows::region_is_used(tx, one)? {
                        return Err(Error::Refused(format!(
                            "Unable to delete region {id} because it or its child regions have \
                             associated endpoints."
                        )));
                    }
                }
                for one in &doomed {
                    rows::delete_region(tx, one)?;
                }
                Ok(())
            })
            .await
    }
}

/// The ids of a region and of the regions below it. It ends also if the regions form a cycle.
fn with_descendants(id: &str, all: &[Region]) -> Vec<String> {
    let mut found = vec![id.to_owned()];
    let mut next = 0;
    while let Some(parent) = found.get(next).cloned() {
        for region in all {
            if region.parent.as_ref() == Some(&parent) && !found.contains(&region.id) {
                found.push(region.id.clone());
            }
        }
        next += 1;
    }
    found
}

fn built_in_service(kind: &str) -> Error {
    Error::Refused(format!(
        "The {kind} service is part of this cloud: its entries follow from the configuration \
         ([api] services) and cannot be changed here."
    ))
}

fn refuse_own_region(id: &str) -> Result<(), Error> {
    match id {
        REGION => Err(Error::Refused(format!(
            "The region {REGION} belongs to this cloud's own services and cannot be changed."
        ))),
        _ => Ok(()),
    }
}

fn service(tx: &mut Tx<'_>, id: &str) -> Result<Service, Error> {
    rows::service(tx, id)?.ok_or_else(Error::not_found("service", id))
}

fn endpoint(tx: &mut Tx<'_>, id: &str) -> Result<Endpoint, Error> {
    rows::endpoint(tx, id)?.ok_or_else(Error::not_found("endpoint", id))
}

fn region(tx: &mut Tx<'_>, id: &str) -> Result<Region, Error> {
    rows::region(tx, id)?.ok_or_else(Error::not_found("region", id))
}

fn short(key: &str, value: &str) -> Result<(), Error> {
    check_name(key, value, LONGEST).map_err(|refusal| Error::Invalid(refusal.message))
}

fn apply_service(made: &mut Service, fields: &Fields) -> Result<(), Error> {
    if let Some(kind) = text(fields, "type")? {
        made.kind = kind;
    }
    short("type", &made.kind)?;
    if fields.contains_key("name") {
        made.name = text(fields, "name")?;
    }
    if let Some(name) = &made.name {
        short("name", name)?;
    }
    if fields.contains_key("description") {
        made.description = text(fields, "description")?;
    }
    if let Some(enabled) = flag(fields, "enabled")? {
        made.enabled = enabled;
    }
    extras(&mut made.extra, fields, &SERVICE)
}

fn new_region(id: String) -> Region {
    Region { id, description: String::new(), parent: None, extra: Fields::new() }
}

fn apply_region(made: &mut Region, fields: &Fields) -> Result<(), Error> {
    short("id", &made.id)?;
    if made.id.contains('/') {
        return Err(Error::Invalid("The id of a region must not contain a slash.".into()));
    }
    if fields.contains_key("description") {
        made.description = text(fields, "description")?.unwrap_or_default();
    }
    if fields.contains_key("parent_region_id") {
        made.parent = text(fields, "parent_region_id")?;
    }
    extras(&mut made.extra, fields, &REGION_FIELDS)
}

/// Refuses a missing parent and a cycle. The regions above are locked: none is deleted, and none moves below this one,
/// before the transaction ends.
fn check_parent(tx: &mut Tx<'_>, made: &Region) -> Result<(), Error> {
    let all = rows::regions(tx)?;
    let mut next = made.parent.clone();
    for _ in 0..=all.len() {
        let Some(id) = next.take() else { return Ok(()) };
        if id == made.id {
            return Err(Error::Invalid("A region cannot be its own ancestor.".into()));
        }
        if id == REGION {
            return Ok(());
        }
        match all.iter().find(|region| region.id == id) {
            Some(parent) if rows::touch_region(tx, &id)? => next = parent.parent.clone(),
            _ => return Err(Error::NotFound("region", id)),
        }
    }
    Err(Error::Invalid("A region cannot be its own ancestor.".into()))
}

fn check_url(url: &str) -> Result<(), Error> {
    let wrong = |why: &str| Err(Error::Invalid(format!("An invalid URL was given: {why}")));
    if !(url.starts_with("http://") || url.starts_with("https://")) {
        return wrong("it must begin with http:// or https://.");
    }
    if url.chars().count() > LONGEST_URL {
        return wrong(&format!("it may have at most {LONGEST_URL} characters."));
    }
    if url.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return wrong("it contains white space or control characters.");
    }
    if catalog::fill(url, Some("p"), "u").is_none() {
        return wrong("the only placeholders are %(project_id)s, %(tenant_id)s and %(user_id)s.");
    }
    Ok(())
}
