//! Usage sums: by user for quotas, by host for operators. [`super::counted`] contains the sums by project.

use std::collections::{BTreeMap, HashMap, HashSet};

use kilonova_ids::HostName;
use kilonova_store::{Error as StoreError, Row, Tx, Value, params};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::Error;

kilonova_store::statements! {
    /// The usage of one user in a project.
    OF_USER = "SELECT COUNT(*) AS instances, CAST(COALESCE(SUM(vcpus), 0) AS BIGINT) AS cores,
        CAST(COALESCE(SUM(memory_mb), 0) AS BIGINT) AS ram FROM servers
        WHERE project_id = ?1 AND user_id = ?2 AND vm_state <> 'soft-delete'";
    /// Selects a row if a host has any server.
    ANY_ON = "SELECT 1 FROM servers WHERE host = ?1 LIMIT 1";
    /// Selects a row if an open migration uses a host.
    ANY_OPEN_MOVE = "SELECT 1 FROM moves WHERE open_server IS NOT NULL
        AND (held_on = ?1 OR source_host = ?1 OR dest_host = ?1) LIMIT 1";
    /// The usage of the servers on some hosts.
    ON_HOSTS = "SELECT host, vcpus, memory_mb, task_state, spec FROM servers WHERE host IN ({})";
    /// The migrations that hold claims, with the host of their server, and its specification where source and destination
    /// are one host. A migration whose claims were released while its host is unreachable has no consumer.
    MOVING = "SELECT m.source_host, m.dest_host, m.held_on, m.old_flavor, m.new_flavor, s.host,
        CASE WHEN m.source_host = m.dest_host THEN s.spec END AS spec
        FROM moves m LEFT JOIN servers s ON s.id = m.server_id
        WHERE m.held_on IS NOT NULL AND EXISTS (SELECT 1 FROM consumers c WHERE c.id = m.id)";
    /// The names of the servers on some hosts, unsorted: sorting is cheaper in this process than in the database.
    SERVERS_ON = "SELECT host, seq, id, name FROM servers WHERE host IN ({})";
    /// The flavors of the servers on one host, with their projects.
    ON_HOST = "SELECT project_id, vcpus, memory_mb, spec FROM servers WHERE host = ?1";
}

/// The usage of a project.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProjectUsage {
    /// Number of servers.
    pub instances: i64,
    /// Number of vCPUs.
    pub cores: i64,
    /// Memory in MiB.
    pub ram: i64,
}

/// The usage of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostUsage {
    /// Number of vCPUs.
    pub vcpus: i64,
    /// Memory in MiB.
    pub memory_mb: i64,
    /// Disk in GiB.
    pub disk_gb: i64,
    /// Number of servers with a task.
    pub busy: i64,
    /// Number of servers.
    pub servers: i64,
}

/// The id and the name of a server.
pub type NamedServer = (String, String);

impl HostUsage {
    /// Adds a server.
    fn add(&mut self, row: &Row) -> Result<(), Error> {
        let disks = Disks::of(row)?;
        self.servers += 1;
        self.vcpus += row.int("vcpus")?;
        self.memory_mb += row.int("memory_mb")?;
        self.busy += i64::from(row.text_opt("task_state")?.is_some());
        self.disk_gb += disks.disk_gb() + disks.swap_gb();
        Ok(())
    }

    /// Adds the claim of a migration, which does not count as a server.
    fn add_claim(&mut self, flavor: &Flavor) {
        self.vcpus += flavor.vcpus;
        self.memory_mb += flavor.ram;
        self.disk_gb += flavor.disks.disk_gb() + flavor.disks.swap_gb();
    }
}

/// The sums of the flavors of one project's servers on a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProjectOnHost {
    /// Project.
    pub project_id: String,
    /// Number of vCPUs.
    pub vcpus: i64,
    /// Memory in MiB.
    pub memory_mb: i64,
    /// Root and ephemeral disks in GiB.
    pub disk_gb: i64,
}

#[derive(Deserialize)]
struct Spec<T> {
    flavor: T,
}

/// The amounts of a flavor.
#[derive(PartialEq, Deserialize)]
struct Flavor {
    vcpus: i64,
    ram: i64,
    #[serde(flatten)]
    disks: Disks,
}

#[derive(PartialEq, Deserialize)]
struct Disks {
    disk: i64,
    ephemeral: i64,
    swap: i64,
}

impl Disks {
    /// The disks of a server's flavor.
    fn of(row: &Row) -> Result<Self, Error> {
        let spec: Spec<Self> = parse(row.text("spec")?, "spec of a server")?;
        Ok(spec.flavor)
    }

    /// Root and ephemeral disk in GiB.
    fn disk_gb(&self) -> i64 {
        self.disk + self.ephemeral
    }

    /// The swap disk, rounded up to GiB.
    fn swap_gb(&self) -> i64 {
        (self.swap + 1023) / 1024
    }
}

fn parse<T: DeserializeOwned>(text: &str, what: &str) -> Result<T, Error> {
    let parsed = serde_json::from_str(text);
    Ok(parsed.map_err(|error| StoreError::Shape(format!("{what}: {error}")))?)
}

/// The usage of one user in a project.
///
/// # Errors
/// Store errors only; also for all functions below.
pub fn of_user(tx: &mut Tx<'_>, project_id: &str, user_id: &str) -> Result<ProjectUsage, Error> {
    let Some(row) = tx.row(OF_USER, params![project_id, user_id])? else {
        return Ok(ProjectUsage::default());
    };
    Ok(ProjectUsage {
        instances: row.int("instances")?,
        cores: row.int("cores")?,
        ram: row.int("ram")?,
    })
}

/// True if a host has any server.
pub fn any_on(tx: &mut Tx<'_>, host: &HostName) -> Result<bool, Error> {
    Ok(tx.row(ANY_ON, params![host])?.is_some())
}

/// True if a host is the source or the destination of an open migration.
pub fn any_open_move_uses(tx: &mut Tx<'_>, host: &HostName) -> Result<bool, Error> {
    Ok(tx.row(ANY_OPEN_MOVE, params![host])?.is_some())
}

/// The usage of each of these hosts: its servers, and the other side of each resize and migration, as in Nova
/// (`_update_usage_from_migration` of `nova/compute/resource_tracker.py`) and in the usages of Placement. A migration adds
/// no server and no task. A host without any is absent.
pub fn of_hosts(
    tx: &mut Tx<'_>,
    names: &[HostName],
) -> Result<HashMap<HostName, HostUsage>, Error> {
    let hosts: Vec<Value> = names.iter().map(Value::from).collect();
    let mut usages: HashMap<HostName, HostUsage> = HashMap::new();
    if names.is_empty() {
        return Ok(usages);
    }
    tx.expect_list(ON_HOSTS, &hosts)?;
    tx.expect(MOVING, params![])?;
    tx.visit_list(ON_HOSTS, &hosts, |row| match usages.get_mut(row.text("host")?) {
        Some(usage) => usage.add(row),
        None => usages.entry(row.host("host")?).or_default().add(row),
    })?;
    let wanted: HashSet<&HostName> = names.iter().collect();
    for row in tx.rows(MOVING, params![])? {
        if let Some((host, flavor)) = claim_of_move(&row)?.filter(|(host, _)| wanted.contains(host))
        {
            usages.entry(host).or_default().add_claim(&flavor);
        }
    }
    Ok(usages)
}

/// The host and the flavor of the claim that a migration adds to its server's own usage. The migration and its server have
/// a claim each, on the two hosts of the migration; the server's row names one of them.
fn claim_of_move(row: &Row) -> Result<Option<(HostName, Flavor)>, Error> {
    let (source, dest) = (row.host("source_host")?, row.host_opt("dest_host")?);
    let held_on = row.host("held_on")?;
    let host = match row.host_opt("host")? {
        Some(host) if host == held_on && host == source => dest.clone(),
        Some(host) if host == held_on => Some(source.clone()),
        _ => Some(held_on),
    };
    let Some(host) = host else { return Ok(None) };
    let flavor = |column: &str| parse::<Flavor>(row.text(column)?, "flavor of a migration");
    let (old, new) = (flavor("old_flavor")?, flavor("new_flavor")?);
    let has_old = match row.text_opt("spec")? {
        Some(spec) => parse::<Spec<Flavor>>(spec, "spec of a server")?.flavor == new,
        None => host == source,
    };
    Ok(Some((host, if has_old { old } else { new })))
}

/// The servers on each of these hosts, oldest first. A host without servers is absent.
pub fn servers_on(
    tx: &mut Tx<'_>,
    hosts: &[HostName],
) -> Result<HashMap<HostName, Vec<NamedServer>>, Error> {
    let hosts: Vec<Value> = hosts.iter().map(Value::from).collect();
    let mut found: Vec<(i64, HostName, NamedServer)> = Vec::new();
    tx.expect_list(SERVERS_ON, &hosts)?;
    tx.visit_list(SERVERS_ON, &hosts, |row| {
        found.push((row.int("seq")?, row.host("host")?, (row.string("id")?, row.string("name")?)));
        Ok::<_, Error>(())
    })?;
    found.sort_unstable_by_key(|(seq, ..)| *seq);
    let mut servers: HashMap<HostName, Vec<NamedServer>> = HashMap::new();
    for (_, host, server) in found {
        servers.entry(host).or_default().push(server);
    }
    Ok(servers)
}

/// The usage of one host by project, in the order of the projects' ids.
pub fn of_host(tx: &mut Tx<'_>, host: &HostName) -> Result<Vec<ProjectOnHost>, Error> {
    let mut projects: BTreeMap<String, ProjectOnHost> = BTreeMap::new();
    for row in tx.rows(ON_HOST, params![host])? {
        let disks = Disks::of(&row)?;
        let project_id = row.string("project_id")?;
        let project = projects
            .entry(project_id.clone())
            .or_insert_with(|| ProjectOnHost { project_id, ..ProjectOnHost::default() });
        project.vcpus += row.int("vcpus")?;
        project.memory_mb += row.int("memory_mb")?;
        project.disk_gb += disks.disk_gb();
    }
    Ok(projects.into_values().collect())
}
