//! The filters of a list of servers.
//!
//! The policy decides which filters a caller may use. A filter on a column becomes a condition of the
//! database query. A filter on a field in a row's JSON is evaluated here; a coarse condition excludes
//! most other rows in the database, because reading a row is expensive.

use jiff::Timestamp;
use kilonova_access::Caller;
use kilonova_compute_app::microversions;
use kilonova_compute_db::servers::listing::{Condition, Which};
use kilonova_compute_db::servers::{Server, VmState};
use kilonova_compute_scheduler::fleet::Fleet;
use kilonova_store::Value;
use kilonova_wire::query::Query;
use kilonova_wire::{Microversion, Refusal, time};
use regex::{Regex, RegexBuilder};

use super::filter_keys::{ADMIN_FILTERS, PUBLIC_FILTERS, check_fields, check_keys};
use super::view;
use crate::api::input;

/// The policy rule that permits every filter.
const ALL_FILTERS: &str = "os_compute_api:servers:allow_all_filters";

/// The filters of one request.
#[derive(Debug, Clone, Default)]
pub(super) struct ServerFilter {
    pub which: Which,
    pub conditions: Vec<Condition>,
    /// The patterns, each with its filter.
    patterns: Vec<(&'static str, Regex)>,
    /// Filters that the filter by status replaces.
    replaced: Vec<&'static str>,
    /// True for a filter by the time of the last change.
    by_time: bool,
    /// Filters on fields in the JSON of a row.
    fields: Vec<(&'static str, String)>,
    tags: Vec<String>,
    tags_any: Vec<String>,
    not_tags: Vec<String>,
    not_tags_any: Vec<String>,
    /// Address patterns. A server matches if one of its addresses contains one of them.
    pub addresses: Vec<String>,
    /// Maps hosts to zones.
    fleet: Fleet,
    /// True if no server can match.
    pub nothing: bool,
}

impl ServerFilter {
    /// Reads the query.
    ///
    /// # Errors
    /// 403 if the caller may not list deleted servers or all projects; 400 for invalid values.
    pub(super) fn read(
        query: &Query,
        context: &Caller,
        version: Microversion,
        fleet: &Fleet,
        detailed: bool,
    ) -> Result<Self, Refusal> {
        if version >= microversions::STRICT_REQUESTS {
            check_keys(query)?;
        }
        if context.allows_own(ALL_FILTERS) {
            check_fields(query)?;
        }
        let mut filter = Self { fleet: fleet.clone(), ..Self::default() };
        filter.by_project(query, context, detailed)?;
        filter.by_name(query)?;
        let states = filter.by_status(query, version)?;
        filter.by_change(query, version)?;
        filter.by_deletion(query, context, &states)?;
        if version >= microversions::TAGS {
            filter.by_tags(query)?;
        }
        if version >= microversions::LOCK_REASON && query.get("locked").is_some() {
            let locked = input::query_boolean(query, "locked")?;
            filter.conditions.push(Condition::Null("locked_by", !locked));
        }
        for (field, first) in PUBLIC_FILTERS {
            if version >= *first || context.allows_own(ALL_FILTERS) {
                filter.by_field(query, field)?;
            }
        }
        if context.allows_own(ALL_FILTERS) {
            for field in ADMIN_FILTERS {
                filter.by_field(query, field)?;
            }
        }
        Ok(filter)
    }

    fn by_project(
        &mut self,
        query: &Query,
        context: &Caller,
        detailed: bool,
    ) -> Result<(), Refusal> {
        let named = query.get("project_id").or(query.get("tenant_id"));
        let named = named.filter(|_| context.is_admin());
        let all = match query.get("all_tenants") {
            // Without `all_tenants`, upstream ignores a named project (bug 1185290).
            None => false,
            Some("") => true,
            Some(word) => boolean(word)
                .ok_or_else(|| input::invalid_query("all_tenants", word, "It is not a boolean."))?,
        };
        if all {
            context.may_own(match detailed {
                true => "os_compute_api:servers:detail:get_all_tenants",
                false => "os_compute_api:servers:index:get_all_tenants",
            })?;
        }
        let project = if all { named } else { Some(context.project_id.as_str()) };
        self.conditions.extend(project.map(|project| Condition::Is("project_id", project.into())));
        Ok(())
    }

    fn by_name(&mut self, query: &Query) -> Result<(), Refusal> {
        let Some(pattern) = query.get("name").filter(|pattern| !pattern.is_empty()) else {
            return Ok(());
        };
        self.by_pattern("name", TextIn::Column("name"), pattern)
    }

    /// Adds a filter that is an unanchored regular expression. If the pattern is plain text and the
    /// field is in a column, the database query evaluates the filter or excludes most other rows.
    fn by_pattern(
        &mut self,
        field: &'static str,
        text: TextIn,
        pattern: &str,
    ) -> Result<(), Refusal> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | ' ' | ':' | '@');
        if pattern.chars().all(plain) {
            match text {
                TextIn::Column(column) => {
                    self.conditions.push(Condition::Contains(column, pattern.to_owned()));
                    return Ok(());
                }
                TextIn::Spec => {
                    self.conditions.push(Condition::Contains("spec", pattern.to_owned()));
                }
                TextIn::NoColumn => {}
            }
        }
        let built = RegexBuilder::new(pattern).case_insensitive(true).size_limit(1 << 18).build();
        let built = built.map_err(|_| {
            Refusal::bad_request(format!(
                "Invalid filter {field}: {} is not a regular expression.",
                pattern.escape_debug()
            ))
        })?;
        self.patterns.push((field, built));
        Ok(())
    }

    /// Selects by `status` as Nova does: a server must have the state of one of the statuses and the task of one of
    /// them; a status that allows any task removes the condition on tasks. Unknown statuses are ignored if another is
    /// known. Returns the states.
    fn by_status(&mut self, query: &Query, version: Microversion) -> Result<Vec<VmState>, Refusal> {
        let statuses: Vec<String> = query.all("status").map(str::to_uppercase).collect();
        if statuses.is_empty() {
            return Ok(Vec::new());
        }
        let known = view::STATUSES.iter().filter(|known| statuses.iter().any(|s| s == *known));
        let selected: Vec<_> = known.map(|status| view::states_and_tasks(status)).collect();
        if selected.is_empty() {
            if version >= microversions::STATUS_CHECKED {
                let shown = statuses.join(", ");
                return Err(Refusal::bad_request(format!(
                    "Invalid status value: {}. It must be one of {}.",
                    shown.escape_debug(),
                    view::STATUSES.join(", ")
                )));
            }
            self.nothing = true;
            return Ok(Vec::new());
        }
        let states: Vec<VmState> =
            selected.iter().flat_map(|(states, _)| states.iter().copied()).collect();
        self.conditions.push(Condition::Among("vm_state", names(&states)));
        self.replaced.push("vm_state");
        if selected.iter().all(|(_, tasks)| !tasks.is_empty()) {
            let tasks = selected.iter().flat_map(|(_, tasks)| tasks.iter());
            let tasks = tasks.map(|task| (*task).into()).collect();
            self.conditions.push(Condition::Among("task_state", tasks));
            self.replaced.push("task_state");
        }
        Ok(states)
    }

    fn by_change(&mut self, query: &Query, version: Microversion) -> Result<(), Refusal> {
        let at = |key: &str| -> Result<Option<Timestamp>, Refusal> {
            let Some(text) = query.get(key).filter(|text| !text.is_empty()) else {
                return Ok(None);
            };
            let read = time::parse(text);
            read.map(Some)
                .ok_or_else(|| input::invalid_query(key, text, "It is not an ISO 8601 time."))
        };
        let since = at("changes-since")?;
        let before =
            if version >= microversions::CHANGES_BEFORE { at("changes-before")? } else { None };
        if let (Some(since), Some(before)) = (since, before)
            && since > before
        {
            return Err(Refusal::bad_request(
                "The value of changes-since must be less than or equal to changes-before.",
            ));
        }
        self.by_time = since.is_some() || before.is_some();
        self.conditions.extend(since.map(|at| Condition::AtLeast("updated_at", at)));
        self.conditions
            .extend(before.map(|at| Condition::AtMost("updated_at", time::end_of_second(at))));
        Ok(())
    }

    /// Selects existing, soft-deleted and deleted servers as Nova does (`_get_servers` in
    /// `api/openstack/compute/servers.py`, `instance_get_all_by_filters_sort` in `db/main/api.py`). The
    /// default is existing servers that are not soft-deleted. A filter by the time of the last change selects all.
    /// `states` are those of the filter by status.
    fn by_deletion(
        &mut self,
        query: &Query,
        context: &Caller,
        states: &[VmState],
    ) -> Result<(), Refusal> {
        if !states.is_empty() && states.iter().all(|state| *state == VmState::Deleted) {
            if !context.is_admin() {
                return Err(Refusal::forbidden("Only administrators may list deleted instances"));
            }
            self.which = Which::Deleted;
            return Ok(());
        }
        let allowed = |key: &str| query.get(key).filter(|_| context.allows_own(ALL_FILTERS));
        // Nova does not parse the text: any text that is not empty is true.
        let soft_deleted = allowed("soft_deleted").map(|word| !word.is_empty());
        let deleted = allowed("deleted")
            .map(|word| {
                boolean(word)
                    .ok_or_else(|| input::invalid_query("deleted", word, "It is not a boolean."))
            })
            .transpose()?;
        match deleted {
            // A deleted server has no other state: it cannot match.
            None if self.by_time && !states.is_empty() && !states.contains(&VmState::Deleted) => {
                self.which = Which::Live;
            }
            None if self.by_time => self.which = Which::Both,
            Some(true) if soft_deleted == Some(false) => self.which = Which::Deleted,
            Some(true) => self.which = Which::Removed,
            None | Some(false) => {
                self.which = Which::Live;
                if soft_deleted != Some(true) {
                    let state = VmState::SoftDeleted.as_str().into();
                    self.conditions.push(Condition::IsNot("vm_state", state));
                }
            }
        }
        Ok(())
    }

    fn by_tags(&mut self, query: &Query) -> Result<(), Refusal> {
        for (key, tags) in [
            ("tags", &mut self.tags),
            ("tags-any", &mut self.tags_any),
            ("not-tags", &mut self.not_tags),
            ("not-tags-any", &mut self.not_tags_any),
        ] {
            if let Some(text) = query.get(key) {
                *tags = text.split(',').map(str::to_owned).collect();
            }
            if tags.len() > 50 {
                return Err(input::invalid_query(key, "…", "At most 50 tags can be requested."));
            }
        }
        let coarse =
            self.tags.iter().filter_map(|tag| json_contains("tags", tag)).collect::<Vec<_>>();
        self.conditions.extend(coarse);
        Ok(())
    }

    fn by_field(&mut self, query: &Query, field: &'static str) -> Result<(), Refusal> {
        let Some(value) = query.get(field).filter(|value| !value.is_empty()) else {
            return Ok(());
        };
        if self.replaced.contains(&field) {
            return Ok(());
        }
        if matches!(field, "ip" | "ip6") {
            self.addresses.push(value.to_owned());
            return Ok(());
        }
        if let Some(text) = TextIn::of(field) {
            return self.by_pattern(field, text, value);
        }
        let is = |column: &'static str| Condition::Is(column, value.into());
        let column = match field {
            "host" => Some(is("host")),
            "uuid" => Some(is("id")),
            "user_id" => Some(is("user_id")),
            "vm_state" => Some(is("vm_state")),
            "task_state" if value.eq_ignore_ascii_case("none") => {
                Some(Condition::Null("task_state", true))
            }
            "task_state" => Some(is("task_state")),
            "power_state" => Some(Condition::Is("power_state", power_state(value)?.into())),
            "created_at" => Some(second("created_at", field, value)?),
            "launched_at" => Some(second("launched_at", field, value)?),
            "terminated_at" => {
                self.nothing |= self.which == Which::Live;
                Some(second("deleted_at", field, value)?)
            }
            _ => None,
        };
        match column {
            Some(condition) => self.conditions.push(condition),
            None => {
                if matches!(field, "flavor" | "image" | "image_ref") {
                    self.conditions.extend(json_contains("spec", value));
                }
                self.fields.push((field, value.to_owned()));
            }
        }
        Ok(())
    }

    /// True if the database query evaluates every filter.
    pub(super) fn is_exact(&self) -> bool {
        self.patterns.is_empty()
            && self.fields.is_empty()
            && self.tags.is_empty()
            && self.tags_any.is_empty()
            && self.not_tags.is_empty()
            && self.not_tags_any.is_empty()
    }

    /// True if a server matches the filters that the database query does not evaluate.
    pub(super) fn passes(&self, server: &Server) -> bool {
        let has = |tag: &String| server.tags.contains(tag);
        self.patterns.iter().all(|(field, pattern)| self.finds(server, field, pattern))
            && self.tags.iter().all(has)
            && (self.tags_any.is_empty() || self.tags_any.iter().any(has))
            && (self.not_tags.is_empty() || !self.not_tags.iter().all(has))
            && !self.not_tags_any.iter().any(has)
            && self.fields.iter().all(|(field, value)| matches(server, field, value))
    }

    /// True if the pattern matches the text of the field. No pattern matches an empty text, because
    /// upstream stores no text there.
    fn finds(&self, server: &Server, field: &str, pattern: &Regex) -> bool {
        let spec = &server.spec;
        let zone;
        let text = match field {
            "name" | "display_name" => Some(server.name.as_str()),
            "description" | "display_description" => server.description.as_deref(),
            "node" => server.host.as_deref(),
            "locked_by" => server.lock.as_ref().map(|lock| lock.by.as_str()),
            "key_name" => spec.key_name.as_deref(),
            "hostname" => Some(spec.hostname.as_str()),
            "reservation_id" => Some(spec.reservation_id.as_str()),
            "access_ip_v4" => Some(spec.access[0].as_str()),
            "access_ip_v6" => Some(spec.access[1].as_str()),
            "root_device_name" => Some("/dev/vda"),
            "availability_zone" => {
                zone = view::zone(&self.fleet, server);
                Some(zone.as_str())
            }
            _ => None,
        };
        text.is_some_and(|text| !text.is_empty() && pattern.is_match(text))
    }
}

/// The place of a text that upstream filters with an unanchored regular expression
/// (`_regex_instance_filter` in `db/main/api.py`).
#[derive(Clone, Copy)]
enum TextIn {
    Column(&'static str),
    /// The JSON of a row.
    Spec,
    /// The text is in no column.
    NoColumn,
}

impl TextIn {
    /// `None` for filters of other kinds.
    fn of(field: &str) -> Option<Self> {
        Some(match field {
            "node" => Self::Column("host"),
            "locked_by" => Self::Column("locked_by"),
            "description" | "display_description" => Self::Column("description"),
            "display_name" => Self::Column("name"),
            "key_name" | "hostname" | "reservation_id" | "access_ip_v4" | "access_ip_v6" => {
                Self::Spec
            }
            "availability_zone" | "root_device_name" => Self::NoColumn,
            _ => return None,
        })
    }
}

/// A condition that holds for every row whose JSON contains the value; `None` for a value that JSON
/// may escape.
fn json_contains(column: &'static str, value: &str) -> Option<Condition> {
    let plain = value.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '"' | '\\'));
    plain.then(|| Condition::Contains(column, format!("\"{value}\"")))
}

/// The names of states, as the database has them.
fn names(states: &[VmState]) -> Vec<Value> {
    states.iter().map(|state| state.as_str().into()).collect()
}

fn power_state(value: &str) -> Result<i64, Refusal> {
    value.parse().map_err(|_| input::invalid_query("power_state", value, "It must be an integer."))
}

/// A condition on a time, with a resolution of one second.
fn second(column: &'static str, field: &str, value: &str) -> Result<Condition, Refusal> {
    let at = time::parse(value)
        .ok_or_else(|| input::invalid_query(field, value, "It is not an ISO 8601 time."))?;
    Ok(Condition::Between(column, time::start_of_second(at), time::end_of_second(at)))
}

fn matches(server: &Server, field: &str, value: &str) -> bool {
    let spec = &server.spec;
    match field {
        "flavor" => spec.flavor.id == value,
        "image" | "image_ref" => {
            spec.image.is_some_and(|id| id.to_string() == value.to_lowercase())
        }
        "launch_index" => spec.launch_index.to_string() == value,
        "config_drive" => boolean(value).unwrap_or(true) == spec.config_drive,
        "auto_disk_config" => boolean(value).unwrap_or(true) == (spec.disk_config == "AUTO"),
        "progress" => value == "0",
        // Servers have no kernel or RAM disk of their own.
        _ => false,
    }
}

/// Nova's `strutils.bool_from_string`.
fn boolean(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "1" | "t" | "true" | "on" | "y" | "yes" => Some(true),
        "0" | "f" | "false" | "off" | "n" | "no" => Some(false),
        _ => None,
    }
}
