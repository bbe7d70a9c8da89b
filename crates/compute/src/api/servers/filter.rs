//! The query of a list: who may use which filter, and which servers pass.

use kilonova_wire::query::Query;
use kilonova_wire::{Context, Fault, time};
use regex::{Regex, RegexBuilder};

use super::view::status;
use crate::db::servers::Server;

/// What a list asks for.
#[derive(Debug, Default)]
pub(super) struct Filter {
    /// `None`: every project.
    pub project: Option<String>,
    name: Option<Regex>,
    /// Conditions on plain fields, as `(field, value)`.
    fields: Vec<(&'static str, String)>,
    tags: Vec<String>,
    tags_any: Vec<String>,
    not_tags: Vec<String>,
    not_tags_any: Vec<String>,
    changed_since: Option<i64>,
    /// Nothing can match, such as `deleted=True`.
    nothing: bool,
}

const FIELDS: &[&str] = &[
    "status",
    "host",
    "flavor",
    "image",
    "uuid",
    "vm_state",
    "task_state",
    "power_state",
    "availability_zone",
    "key_name",
    "user_id",
    "hostname",
    "reservation_id",
    "description",
    "launch_index",
    "config_drive",
    "node",
];

impl Filter {
    /// Reads the query.
    ///
    /// # Errors
    /// 403 for `all_tenants` by others than admins, 400 for values that mean nothing.
    pub(super) fn read(query: &Query, context: &Context) -> Result<Self, Fault> {
        let mut filter = Self { project: Some(context.project_id.clone()), ..Self::default() };
        if query.get("all_tenants").is_some_and(|value| truth(value).unwrap_or(value.is_empty())) {
            context.require_admin("os_compute_api:servers:index:get_all_tenants")?;
            filter.project = None;
        }
        if let Some(project) = query.get("project_id").or(query.get("tenant_id"))
            && context.is_admin()
            && filter.project.is_none()
        {
            filter.project = Some(project.to_owned());
        }
        if let Some(pattern) = query.get("name") {
            let mut regex = RegexBuilder::new(pattern);
            let built = regex.case_insensitive(true).size_limit(1 << 18).build();
            filter.name = Some(built.map_err(|_| {
                Fault::bad_request(format!(
                    "Invalid filter name: {pattern} is no regular expression."
                ))
            })?);
        }
        if let Some(value) = query.get("deleted") {
            filter.nothing = truth(value).unwrap_or(false) && context.is_admin();
        }
        if let Some(value) = query.get("changes-since") {
            filter.changed_since = Some(time::parse(value).ok_or_else(|| {
                Fault::bad_request(format!("Invalid input for query parameters changes-since. Value: {value}. It is not an ISO 8601 time."))
            })?);
        }
        for field in FIELDS {
            filter.fields.extend(query.all(field).last().map(|value| (*field, value.to_owned())));
        }
        let list = |key: &str| -> Vec<String> {
            query.get(key).into_iter().flat_map(|v| v.split(',')).map(str::to_owned).collect()
        };
        filter.tags = list("tags");
        filter.tags_any = list("tags-any");
        filter.not_tags = list("not-tags");
        filter.not_tags_any = list("not-tags-any");
        Ok(filter)
    }

    /// Whether a server passes.
    pub(super) fn passes(&self, server: &Server) -> bool {
        let has = |tag: &String| server.tags.contains(tag);
        !self.nothing
            && self.name.as_ref().is_none_or(|name| name.is_match(&server.name))
            && self.changed_since.is_none_or(|since| server.updated_at >= since)
            && self.tags.iter().all(has)
            && (self.tags_any.is_empty() || self.tags_any.iter().any(has))
            && (self.not_tags.is_empty() || !self.not_tags.iter().all(has))
            && !self.not_tags_any.iter().any(has)
            && self.fields.iter().all(|(field, value)| matches(server, field, value))
    }
}

fn matches(server: &Server, field: &str, value: &str) -> bool {
    let spec = &server.spec;
    match field {
        "status" => status(server).eq_ignore_ascii_case(value),
        "host" | "node" => server.host.as_deref() == Some(value),
        "flavor" => spec.flavor.id == value,
        "image" => spec.image.is_some_and(|id| id.to_string() == value),
        "uuid" => server.id.to_string() == value,
        "vm_state" => server.vm_state.as_str() == value,
        "task_state" => server.task_state.as_deref() == Some(value),
        "power_state" => server.power_state.to_string() == value,
        "availability_zone" => spec.availability_zone.as_deref().unwrap_or("nova") == value,
        "key_name" => spec.key_name.as_deref() == Some(value),
        "user_id" => server.user_id == value,
        "hostname" => spec.hostname == value,
        "reservation_id" => spec.reservation_id == value,
        "launch_index" => spec.launch_index.to_string() == value,
        "config_drive" => truth(value).is_none_or(|wanted| wanted == spec.config_drive),
        "description" => server.description.as_deref() == Some(value),
        _ => true,
    }
}

/// Nova's `strutils.bool_from_string`.
fn truth(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "1" | "t" | "true" | "on" | "y" | "yes" => Some(true),
        "0" | "f" | "false" | "off" | "n" | "no" => Some(false),
        _ => None,
    }
}
