//! `sort_key` and `sort_dir`: by columns in the database, by what stands in a row's JSON here.

use std::cmp::Ordering;

use kilonova_store::Value;
use kilonova_wire::query::Query;
use kilonova_wire::{Context, Fault};

use crate::api::input;
use crate::app::fleet::Fleet;
use crate::db::servers::Server;
use crate::db::servers::listing::Key;

/// How a key is compared.
#[derive(Clone, Copy)]
enum By {
    /// SQL over columns, never null.
    Column(&'static str, fn(&Server) -> Value),
    /// What stands in the JSON of a row.
    Inside(fn(&Server) -> Value),
    /// The zone of its host.
    Zone,
    /// The same for every server here.
    Nothing,
}

const fn nothing(name: &'static str) -> (&'static str, By) {
    (name, By::Nothing)
}

fn text(value: Option<&str>) -> Value {
    value.unwrap_or_default().into()
}

const KEYS: &[(&str, By)] = &[
    ("access_ip_v4", By::Inside(|s| s.spec.access[0].as_str().into())),
    ("access_ip_v6", By::Inside(|s| s.spec.access[1].as_str().into())),
    nothing("architecture"),
    ("auto_disk_config", By::Inside(|s| s.spec.disk_config.as_str().into())),
    ("availability_zone", By::Zone),
    nothing("cell_name"),
    nothing("cleaned"),
    ("config_drive", By::Inside(|s| s.spec.config_drive.into())),
    ("created_at", By::Column("created_at", |s| s.created_at.into())),
    nothing("default_ephemeral_device"),
    nothing("default_swap_device"),
    nothing("deleted"),
    nothing("deleted_at"),
    nothing("disable_terminate"),
    (
        "display_description",
        By::Column("COALESCE(description, '')", |s| text(s.description.as_deref())),
    ),
    ("display_name", By::Column("name", |s| s.name.as_str().into())),
    ("ephemeral_gb", By::Inside(|s| s.spec.flavor.ephemeral.into())),
    nothing("ephemeral_key_uuid"),
    ("host", By::Column("COALESCE(host, '')", |s| text(s.host.as_deref()))),
    ("hostname", By::Inside(|s| s.spec.hostname.as_str().into())),
    ("id", By::Column("seq", |s| s.seq.into())),
    ("image_ref", By::Inside(|s| text(s.spec.image.map(|id| id.to_string()).as_deref()))),
    ("instance_type_id", By::Inside(|s| s.spec.flavor.id.as_str().into())),
    nothing("kernel_id"),
    nothing("key_data"),
    ("key_name", By::Inside(|s| text(s.spec.key_name.as_deref()))),
    ("launch_index", By::Inside(|s| s.spec.launch_index.into())),
    ("launched_at", By::Column("COALESCE(launched_at, 0)", |s| s.launched_at.unwrap_or(0).into())),
    ("launched_on", By::Column("COALESCE(host, '')", |s| text(s.host.as_deref()))),
    (
        "locked",
        By::Column("CASE WHEN locked_by IS NULL THEN 0 ELSE 1 END", |s| s.lock.is_some().into()),
    ),
    (
        "locked_by",
        By::Column("COALESCE(locked_by, '')", |s| {
            text(s.lock.as_ref().map(|lock| lock.by.as_str()))
        }),
    ),
    ("memory_mb", By::Inside(|s| s.spec.flavor.ram.into())),
    ("node", By::Column("COALESCE(host, '')", |s| text(s.host.as_deref()))),
    nothing("os_type"),
    ("power_state", By::Column("power_state", |s| s.power_state.into())),
    nothing("progress"),
    ("project_id", By::Column("project_id", |s| s.project_id.as_str().into())),
    nothing("ramdisk_id"),
    ("reservation_id", By::Inside(|s| s.spec.reservation_id.as_str().into())),
    nothing("root_device_name"),
    ("root_gb", By::Inside(|s| s.spec.flavor.disk.into())),
    nothing("shutdown_terminate"),
    ("task_state", By::Column("COALESCE(task_state, '')", |s| text(s.task_state.as_deref()))),
    nothing("terminated_at"),
    ("updated_at", By::Column("updated_at", |s| s.updated_at.into())),
    nothing("user_data"),
    ("user_id", By::Column("user_id", |s| s.user_id.as_str().into())),
    ("uuid", By::Column("id", |s| s.id.to_string().into())),
    ("vcpus", By::Inside(|s| s.spec.flavor.vcpus.into())),
    nothing("vm_mode"),
    ("vm_state", By::Column("vm_state", |s| s.vm_state.as_str().into())),
];
const ADMINS: &[&str] = &["host", "node", "launched_on"];

/// What a list is sorted by.
#[derive(Default, Clone)]
pub(super) struct Sort {
    keys: Vec<(By, bool)>,
    /// Which zone a host is in.
    fleet: Fleet,
}

impl Sort {
    /// Reads the query: as many directions as there are keys, or fewer; the rest is descending.
    ///
    /// # Errors
    /// 400 for a key or a direction that is none, 403 for keys that are the admins'.
    pub(super) fn read(query: &Query, context: &Context, fleet: &Fleet) -> Result<Self, Fault> {
        let mut directions = query.all("sort_dir");
        let mut keys = Vec::new();
        for name in query.all("sort_key").filter(|name| !name.is_empty()) {
            let known = KEYS.iter().find(|(known, _)| *known == name);
            let (_, by) = known.ok_or_else(|| {
                input::wrong_query("sort_key", name, "Servers cannot be sorted by it.")
            })?;
            if ADMINS.contains(&name) && !context.is_admin() {
                return Err(Fault::forbidden(format!(
                    "Only administrators can sort servers by {name}"
                )));
            }
            keys.push((*by, direction(directions.next())?));
        }
        for left in directions {
            direction(Some(left))?;
        }
        Ok(Self { keys, fleet: fleet.clone() })
    }

    /// The order as the database takes it; `None` when it cannot.
    pub(super) fn in_database(&self) -> Option<Vec<Key>> {
        self.keys
            .iter()
            .filter(|(by, _)| !matches!(by, By::Nothing))
            .map(|(by, descending)| match by {
                By::Column(sql, of) => Some(Key { sql, of: *of, descending: *descending }),
                _ => None,
            })
            .collect()
    }

    /// The order of two servers.
    pub(super) fn compare(&self, a: &Server, b: &Server) -> Ordering {
        for (by, descending) in &self.keys {
            let order = match by {
                By::Column(_, of) | By::Inside(of) => compare(&of(a), &of(b)),
                By::Zone => self.zone(a).cmp(&self.zone(b)),
                By::Nothing => continue,
            };
            if order != Ordering::Equal {
                return if *descending { order.reverse() } else { order };
            }
        }
        b.seq.cmp(&a.seq)
    }

    fn zone(&self, server: &Server) -> String {
        let host = server.host.as_deref().and_then(|host| self.fleet.by_name(host));
        host.map(|host| host.zone()).unwrap_or_default()
    }
}

fn direction(word: Option<&str>) -> Result<bool, Fault> {
    match word {
        None | Some("desc") => Ok(true),
        Some("asc") => Ok(false),
        Some(word) => Err(input::wrong_query("sort_dir", word, "It must be asc or desc.")),
    }
}

fn compare(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::Text(a), Value::Text(b)) => a.cmp(b),
        _ => Ordering::Equal,
    }
}
