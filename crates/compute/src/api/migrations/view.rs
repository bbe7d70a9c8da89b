//! Views of a migration, in `/os-migrations` and in `/servers/{id}/migrations`.

use std::collections::{BTreeSet, HashMap};

use crate::api::links::Base;
use kilonova_compute_app::flows::initial_progress;
use kilonova_compute_app::{Error, microversions};
use kilonova_compute_db::moves::{Kind, Move, Status};
use kilonova_compute_db::{flavors, hosts};
use kilonova_ids::HostName;
use kilonova_store::Tx;
use kilonova_wire::{Microversion, time};
use serde_json::{Value, json};

/// Statuses of a live migration in progress.
const IN_PROGRESS: [Status; 4] =
    [Status::Queued, Status::Preparing, Status::Running, Status::PostMigrating];

/// True for a live migration in progress, which clients can also read in `/servers/{id}/migrations`.
pub fn is_in_progress(one: &Move) -> bool {
    one.kind == Kind::Live && IN_PROGRESS.contains(&one.status)
}

/// The data that the views need besides the migrations.
pub struct MigrationViews {
    /// Addresses of the destination hosts.
    addresses: HashMap<HostName, String>,
    /// Numbers of the flavors that still exist.
    flavors: HashMap<String, i64>,
}

impl MigrationViews {
    /// Reads the data for these migrations.
    ///
    /// # Errors
    /// Store errors only.
    pub fn read(tx: &mut Tx<'_>, moves: &[Move]) -> Result<Self, Error> {
        let (mut addresses, mut numbers) = (HashMap::new(), HashMap::new());
        let names: BTreeSet<&HostName> = moves.iter().filter_map(|one| one.dest.as_ref()).collect();
        for name in names {
            if let Some(host) = hosts::by_name(tx, name)? {
                addresses.insert(name.clone(), host.host_ip);
            }
        }
        let flavors: BTreeSet<&String> =
            moves.iter().flat_map(|one| [&one.old_flavor.id, &one.new_flavor.id]).collect();
        for id in flavors {
            if let Some(flavor) = flavors::by_id(tx, id)? {
                numbers.insert(id.clone(), flavor.number);
            }
        }
        Ok(Self { addresses, flavors: numbers })
    }

    fn dest_host(&self, one: &Move) -> Value {
        json!(one.dest.as_ref().and_then(|dest| self.addresses.get(dest)))
    }

    /// One row of `/os-migrations`.
    pub fn brief(&self, one: &Move, version: Microversion, base: &Base) -> Value {
        let mut shown = json!({
            "id": one.number,
            "source_node": one.source,
            "source_compute": one.source,
            "dest_node": one.dest,
            "dest_compute": one.dest,
            "dest_host": self.dest_host(one),
            "status": one.status,
            "instance_uuid": one.server,
            "old_instance_type_id": self.flavors.get(&one.old_flavor.id),
            "new_instance_type_id": self.flavors.get(&one.new_flavor.id),
            "created_at": time::naive(one.created_at),
            "updated_at": time::naive(one.updated_at),
        });
        if version >= microversions::MIGRATIONS_OF_SERVER {
            shown["migration_type"] = one.kind.as_str().into();
            if is_in_progress(one) {
                let path = format!("servers/{}/migrations/{}", one.server, one.number);
                shown["links"] = json!([
                    {"rel": "self", "href": format!("{}/{path}", base.versioned())},
                    {"rel": "bookmark", "href": format!("{}/{path}", base.unversioned())},
                ]);
            }
        }
        add_later_fields(&mut shown, one, version);
        shown
    }

    /// A migration in `/servers/{id}/migrations`, with its progress.
    pub fn progress(&self, one: &Move, version: Microversion) -> Value {
        let progress = one.progress.unwrap_or_else(|| initial_progress(one.old_flavor.ram));
        let mut shown = json!({
            "id": one.number,
            "source_node": one.source,
            "source_compute": one.source,
            "dest_node": one.dest,
            "dest_compute": one.dest,
            "dest_host": self.dest_host(one),
            "status": one.status,
            "server_uuid": one.server,
            "created_at": time::naive(one.created_at),
            "updated_at": time::naive(one.updated_at),
            "memory_total_bytes": progress.memory_total,
            "memory_processed_bytes": progress.memory_processed,
            "memory_remaining_bytes": progress.memory_remaining,
            "disk_total_bytes": progress.disk_total,
            "disk_processed_bytes": progress.disk_processed,
            "disk_remaining_bytes": progress.disk_remaining,
        });
        add_later_fields(&mut shown, one, version);
        shown
    }
}

/// Removes the hosts from a view unless the caller may see them.
pub fn with_hosts(mut shown: Value, hosts: bool) -> Value {
    const NAMES: [&str; 5] =
        ["dest_compute", "dest_host", "dest_node", "source_compute", "source_node"];
    for name in NAMES.into_iter().filter(|_| !hosts) {
        shown[name] = Value::Null;
    }
    shown
}

/// Adds the fields of later microversions to either view.
fn add_later_fields(shown: &mut Value, one: &Move, version: Microversion) {
    if version >= microversions::MIGRATION_PAGES {
        shown["uuid"] = json!(one.id);
    }
    if version >= microversions::MIGRATION_OWNERS {
        shown["user_id"] = json!(one.user_id);
        shown["project_id"] = json!(one.project_id);
    }
}
