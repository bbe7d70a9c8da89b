//! `sort_key` and `sort_dir`. The database sorts by columns; this module sorts by fields in a row's
//! JSON.

use std::cmp::Ordering;

use kilonova_compute_db::servers::listing::Key;
use kilonova_compute_db::servers::{Server, TaskState};
use kilonova_compute_scheduler::fleet::Fleet;
use kilonova_store::Value;
use kilonova_wire::query::Query;
use kilonova_wire::{Context, Refusal};

use crate::api::input;

/// The values that a sort key compares.
#[derive(Clone, Copy)]
enum SortBy {
    /// An SQL expression over columns that is never null, and its value.
    Column(&'static str, fn(&Server) -> Value),
    /// A field in the JSON of a row.
    JsonField(fn(&Server) -> Value),
    /// The zone that the server shows.
    Zone,
    /// A value that is the same for every server here.
    Constant,
}

const fn constant(name: &'static str) -> (&'static str, SortBy) {
    (name, SortBy::Constant)
}

fn text(value: Option<&str>) -> Value {
    value.unwrap_or_default().into()
}

/// The sort keys.
const KEYS: &[(&str, SortBy)] = &[
    ("access_ip_v4", SortBy::JsonField(|s| s.spec.access[0].as_str().into())),
    ("access_ip_v6", SortBy::JsonField(|s| s.spec.access[1].as_str().into())),
    constant("architecture"),
    ("auto_disk_config", SortBy::JsonField(|s| s.spec.disk_config.as_str().into())),
    ("availability_zone", SortBy::Zone),
    constant("cell_name"),
    constant("cleaned"),
    ("config_drive", SortBy::JsonField(|s| s.spec.config_drive.into())),
    ("created_at", SortBy::Column("created_at", |s| s.created_at.into())),
    constant("default_ephemeral_device"),
    constant("default_swap_device"),
    constant("deleted"),
    constant("deleted_at"),
    constant("disable_terminate"),
    (
        "display_description",
        SortBy::Column("COALESCE(description, '')", |s| text(s.description.as_deref())),
    ),
    ("display_name", SortBy::Column("name", |s| s.name.as_str().into())),
    ("ephemeral_gb", SortBy::JsonField(|s| s.spec.flavor.ephemeral.into())),
    constant("ephemeral_key_uuid"),
    ("host", SortBy::Column("COALESCE(host, '')", |s| text(s.host.as_deref()))),
    ("hostname", SortBy::JsonField(|s| s.spec.hostname.as_str().into())),
    ("id", SortBy::Column("seq", |s| s.seq.into())),
    ("image_ref", SortBy::JsonField(|s| text(s.spec.image.map(|id| id.to_string()).as_deref()))),
    ("instance_type_id", SortBy::JsonField(|s| s.spec.flavor.id.as_str().into())),
    constant("kernel_id"),
    constant("key_data"),
    ("key_name", SortBy::JsonField(|s| text(s.spec.key_name.as_deref()))),
    ("launch_index", SortBy::JsonField(|s| s.spec.launch_index.into())),
    (
        "launched_at",
        SortBy::Column("COALESCE(launched_at, 0)", |s| s.launched_at.unwrap_or_default().into()),
    ),
    ("launched_on", SortBy::Column("COALESCE(host, '')", |s| text(s.host.as_deref()))),
    (
        "locked",
        SortBy::Column("CASE WHEN locked_by IS NULL THEN 0 ELSE 1 END", |s| {
            s.lock.is_some().into()
        }),
    ),
    (
        "locked_by",
        SortBy::Column("COALESCE(locked_by, '')", |s| {
            text(s.lock.as_ref().map(|lock| lock.by.as_str()))
        }),
    ),
    ("memory_mb", SortBy::JsonField(|s| s.spec.flavor.ram.into())),
    ("node", SortBy::Column("COALESCE(host, '')", |s| text(s.host.as_deref()))),
    constant("os_type"),
    ("power_state", SortBy::Column("power_state", |s| s.power_state.number().into())),
    constant("progress"),
    ("project_id", SortBy::Column("project_id", |s| s.project_id.as_str().into())),
    constant("ramdisk_id"),
    ("reservation_id", SortBy::JsonField(|s| s.spec.reservation_id.as_str().into())),
    constant("root_device_name"),
    ("root_gb", SortBy::JsonField(|s| s.spec.flavor.disk.into())),
    constant("shutdown_terminate"),
    (
        "task_state",
        SortBy::Column("COALESCE(task_state, '')", |s| text(s.task_state.map(TaskState::as_str))),
    ),
    constant("terminated_at"),
    ("updated_at", SortBy::Column("updated_at", |s| s.updated_at.into())),
    constant("user_data"),
    ("user_id", SortBy::Column("user_id", |s| s.user_id.as_str().into())),
    ("uuid", SortBy::Column("id", |s| s.id.to_string().into())),
    ("vcpus", SortBy::JsonField(|s| s.spec.flavor.vcpus.into())),
    constant("vm_mode"),
    ("vm_state", SortBy::Column("vm_state", |s| s.vm_state.as_str().into())),
];
/// Keys that only administrators may use.
const ADMIN_KEYS: &[&str] = &["host", "node", "launched_on"];

/// The sort keys of a list.
#[derive(Default, Clone)]
pub(super) struct Sort {
    keys: Vec<(SortBy, bool)>,
    /// True if ties are sorted oldest first.
    pub oldest_first: bool,
    /// Maps hosts to zones.
    fleet: Fleet,
}

impl Sort {
    /// Reads the query, as upstream's `common.get_sort_params` and `db/utils.py`. Without a key, servers
    /// are sorted by their time of creation. Keys without a direction, and ties, use the first direction, or descending
    /// if there is none. A repeated key cannot change the order and is dropped, which bounds the length of the query.
    ///
    /// # Errors
    /// 400 for an unknown key or direction or more directions than keys, 403 for keys of administrators.
    pub(super) fn read(query: &Query, context: &Context, fleet: &Fleet) -> Result<Self, Refusal> {
        let directions = query.all("sort_dir").map(|word| direction(word.trim()));
        let directions = directions.collect::<Result<Vec<bool>, _>>()?;
        let first = directions.first().copied().unwrap_or(true);
        let mut keys = Vec::new();
        let mut named: Vec<&str> = Vec::new();
        let mut count = 0;
        for name in query.all("sort_key").filter(|name| !name.is_empty()) {
            let known = KEYS.iter().find(|(known, _)| *known == name);
            let (_, by) = known.ok_or_else(|| {
                input::invalid_query("sort_key", name, "Servers cannot be sorted by it.")
            })?;
            if ADMIN_KEYS.contains(&name) && !context.is_admin() {
                return Err(Refusal::forbidden(format!(
                    "Only administrators can sort servers by {name}"
                )));
            }
            let descending = directions.get(count).copied().unwrap_or(first);
            count += 1;
            if !named.contains(&name) {
                named.push(name);
                keys.push((*by, descending));
            }
        }
        if directions.len() > count.max(1) {
            return Err(Refusal::bad_request(
                "Invalid input received: Sort direction size exceeds sort key size",
            ));
        }
        Ok(Self { keys, oldest_first: !first, fleet: fleet.clone() })
    }

    /// The keys as columns of the database; `None` if some key is not a column.
    pub(super) fn in_database(&self) -> Option<Vec<Key>> {
        self.keys
            .iter()
            .filter(|(by, _)| !matches!(by, SortBy::Constant))
            .map(|(by, descending)| match by {
                SortBy::Column(sql, of) => Some(Key { sql, of: *of, descending: *descending }),
                _ => None,
            })
            .collect()
    }

    /// Compares two servers.
    pub(super) fn compare(&self, a: &Server, b: &Server) -> Ordering {
        for (by, descending) in &self.keys {
            let order = match by {
                SortBy::Column(_, of) | SortBy::JsonField(of) => compare_values(&of(a), &of(b)),
                SortBy::Zone => self.zone(a).cmp(&self.zone(b)),
                SortBy::Constant => continue,
            };
            if order != Ordering::Equal {
                return if *descending { order.reverse() } else { order };
            }
        }
        if self.oldest_first { a.seq.cmp(&b.seq) } else { b.seq.cmp(&a.seq) }
    }

    fn zone(&self, server: &Server) -> String {
        super::view::zone(&self.fleet, server)
    }
}

/// True for descending.
fn direction(word: &str) -> Result<bool, Refusal> {
    match word {
        "desc" => Ok(true),
        "asc" => Ok(false),
        word => Err(input::invalid_query("sort_dir", word, "It must be asc or desc.")),
    }
}

fn compare_values(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::Text(a), Value::Text(b)) => a.cmp(b),
        _ => Ordering::Equal,
    }
}
