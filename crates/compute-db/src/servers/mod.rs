//! Rows of `servers`.

pub mod deleted;
pub mod files;
mod hints;
pub mod listing;
pub mod marks;
mod model;
pub mod on_hosts;
pub mod statements;

pub use hints::SchedulerHints;
pub use model::{
    Creator, Fault, FlavorOf, LocalDisks, Lock, NewServer, PowerState, Server, Spec, TaskState,
    VmState, instance_name, short,
};
pub use model::{from_text, to_text};

use std::collections::HashMap;

use jiff::Timestamp;
use kilonova_ids::{HostName, ServerId};
use kilonova_store::{Asked, Row, Tx, Value, params};

use super::{consoles, counted};
use crate::Error;
use statements as sql;

/// Inserts a server and returns its number, which is part of the name of its libvirt domain. The caller must have
/// counted the server ([`counted::count`]).
///
/// # Errors
/// Store errors only.
pub fn insert(tx: &mut Tx<'_>, server: &NewServer, now: Timestamp) -> Result<i64, Error> {
    let asked = ask_insert(tx, server, now)?;
    inserted(tx, asked)
}

/// Asks for [`insert`].
///
/// # Errors
/// Store errors only.
pub fn ask_insert(tx: &mut Tx<'_>, server: &NewServer, now: Timestamp) -> Result<Asked, Error> {
    let params = params![
        server.id,
        &server.project_id,
        &server.user_id,
        &server.name,
        server.description.as_deref(),
        server.host.as_ref(),
        server.vm_state.as_str(),
        server.task_state.map(TaskState::as_str),
        PowerState::NoState.number(),
        server.spec.flavor.vcpus,
        server.spec.flavor.ram,
        model::to_text(&server.spec)?,
        model::to_text(&server.metadata)?,
        model::to_text(&server.tags)?,
        server.fault.as_ref().map(model::to_text).transpose()?,
        now,
        !server.spec.files.is_empty()
    ];
    Ok(tx.ask(sql::INSERT, params)?)
}

/// The number of the server that [`ask_insert`] inserts.
///
/// # Errors
/// Store errors only.
pub fn inserted(tx: &mut Tx<'_>, asked: Asked) -> Result<i64, Error> {
    let row = tx.answer_row(asked)?;
    row.map_or_else(|| Err(shape("INSERT returned no row")), |row| Ok(row.int("seq")?))
}

/// One server.
///
/// # Errors
/// Store errors only.
pub fn find(tx: &mut Tx<'_>, id: ServerId) -> Result<Option<Server>, Error> {
    tx.row(sql::FIND, params![id])?.as_ref().map(read).transpose()
}

/// Asks for those of these servers that exist, for [`those`].
///
/// # Errors
/// Store errors only.
pub fn ask_some(tx: &mut Tx<'_>, ids: &[ServerId]) -> Result<Vec<Asked>, Error> {
    let ids: Vec<Value> = ids.iter().map(|id| Value::from(*id)).collect();
    Ok(tx.ask_list(sql::SOME, &ids)?)
}

/// The servers that [`ask_some`] asked for.
///
/// # Errors
/// Store errors only.
pub fn those(tx: &mut Tx<'_>, asked: Vec<Asked>) -> Result<HashMap<ServerId, Server>, Error> {
    let read = |row: &Row| read(row).map(|server| (server.id, server));
    tx.answers(asked)?.iter().map(read).collect()
}

/// Sets the states of a server.
///
/// # Errors
/// Store errors only.
pub fn set_state(
    tx: &mut Tx<'_>,
    id: ServerId,
    vm_state: VmState,
    task_state: Option<TaskState>,
    power_state: PowerState,
    now: Timestamp,
) -> Result<(), Error> {
    if vm_state == VmState::SoftDeleted {
        counted::subtract(tx, id)?;
    } else {
        counted::add_back(tx, id)?;
    }
    let params = params![
        id,
        vm_state.as_str(),
        task_state.map(TaskState::as_str),
        power_state.number(),
        now
    ];
    tx.defer(sql::SET_STATE, params)?;
    Ok(())
}

/// Sets the state that an operator chose, without a task. The server keeps its fault, as upstream (`_reset_state` in
/// `nova/api/openstack/compute/admin_actions.py`): clients see it again once the server is in `ERROR`.
///
/// # Errors
/// Store errors only.
pub fn reset_state(
    tx: &mut Tx<'_>,
    id: ServerId,
    vm_state: VmState,
    now: Timestamp,
) -> Result<(), Error> {
    counted::add_back(tx, id)?;
    tx.defer(sql::RESET_STATE, params![id, vm_state.as_str(), now])?;
    Ok(())
}

/// Sets a server that is being built to active.
///
/// # Errors
/// Store errors only.
pub fn set_built(
    tx: &mut Tx<'_>,
    id: ServerId,
    power_state: PowerState,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(sql::SET_BUILT, params![id, power_state.number(), now])?;
    Ok(())
}

/// Sets the power state.
///
/// # Errors
/// Store errors only.
pub fn set_power(
    tx: &mut Tx<'_>,
    id: ServerId,
    power_state: PowerState,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(sql::SET_POWER, params![id, power_state.number(), now])?;
    Ok(())
}

/// Sets the task state.
///
/// # Errors
/// Store errors only.
pub fn set_task(
    tx: &mut Tx<'_>,
    id: ServerId,
    task: Option<TaskState>,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(sql::SET_TASK, params![id, task.map(TaskState::as_str), now])?;
    Ok(())
}

/// Records the first start.
///
/// # Errors
/// Store errors only.
pub fn set_launched(tx: &mut Tx<'_>, id: ServerId, now: Timestamp) -> Result<(), Error> {
    tx.defer(sql::SET_LAUNCHED, params![id, now])?;
    Ok(())
}

/// Records that the guest was spawned, rescued, resized or reverted: `launched_at` changes even if it is set, as in Nova
/// (`_update_instance_after_spawn` in `nova/compute/manager.py`).
///
/// # Errors
/// Store errors only.
pub fn set_relaunched(tx: &mut Tx<'_>, id: ServerId, now: Timestamp) -> Result<(), Error> {
    tx.defer(sql::SET_RELAUNCHED, params![id, now])?;
    Ok(())
}

/// Sets or clears the host, and ends the tokens for consoles on the former host. Returns true if the server
/// has ports, which must follow the server.
///
/// # Errors
/// Store errors only.
pub fn set_host(
    tx: &mut Tx<'_>,
    id: ServerId,
    host: Option<&HostName>,
    now: Timestamp,
) -> Result<bool, Error> {
    consoles::leave(tx, id, host)?;
    let row = tx.row(sql::SET_HOST, params![id, host, now])?;
    row.map_or(Ok(false), |row| networked(&row))
}

/// Records the machine type of the guest on this host, if the server is there.
///
/// # Errors
/// Store errors only.
pub fn set_machine_type(
    tx: &mut Tx<'_>,
    id: ServerId,
    host: &HostName,
    machine_type: &str,
) -> Result<(), Error> {
    Ok(tx.defer(sql::SET_MACHINE_TYPE, params![id, host, machine_type])?)
}

/// Forgets the machine type of the guest, because a rebuild chooses it anew.
///
/// # Errors
/// Store errors only.
pub fn clear_machine_type(tx: &mut Tx<'_>, id: ServerId) -> Result<(), Error> {
    Ok(tx.defer(sql::CLEAR_MACHINE_TYPE, params![id])?)
}

fn networked(row: &Row) -> Result<bool, Error> {
    Ok(model::from_text::<model::Networked>(row.text("spec")?)?.networked)
}

/// Replaces the spec.
///
/// # Errors
/// Store errors only.
pub fn set_spec(tx: &mut Tx<'_>, id: ServerId, spec: &Spec, now: Timestamp) -> Result<(), Error> {
    tx.defer(sql::SET_SPEC, params![id, model::to_text(spec)?, now, !spec.files.is_empty()])?;
    Ok(())
}

/// Announces [`host_of`].
///
/// # Errors
/// Store errors only.
pub fn expect_host_of(tx: &mut Tx<'_>, id: ServerId) -> Result<(), Error> {
    Ok(tx.expect(sql::HOST_OF, params![id])?)
}

/// Announces [`find`].
///
/// # Errors
/// Store errors only.
pub fn expect(tx: &mut Tx<'_>, id: ServerId) -> Result<(), Error> {
    Ok(tx.expect(sql::FIND, params![id])?)
}

/// The host of a server, if it has one.
///
/// # Errors
/// Store errors only.
pub fn host_of(tx: &mut Tx<'_>, id: ServerId) -> Result<Option<HostName>, Error> {
    Ok(tx.row(sql::HOST_OF, params![id])?.map_or(Ok(None), |row| row.host_opt("host"))?)
}

/// The servers on a host.
///
/// # Errors
/// Store errors only.
pub fn ids_on(tx: &mut Tx<'_>, host: &HostName) -> Result<Vec<ServerId>, Error> {
    let rows = tx.rows(sql::IDS_ON, params![host])?;
    Ok(rows.iter().map(|row| row.id("id")).collect::<Result<_, kilonova_store::Error>>()?)
}

/// The states of a server.
#[derive(Debug, Clone, Copy)]
pub struct States {
    /// The server.
    pub id: ServerId,
    /// Its VM state.
    pub vm_state: VmState,
    /// Its task state.
    pub task_state: Option<TaskState>,
    /// True if it has ever run.
    pub launched: bool,
}

/// Announces [`states_on`].
///
/// # Errors
/// Store errors only.
pub fn expect_states_on(tx: &mut Tx<'_>, host: &HostName) -> Result<(), Error> {
    Ok(tx.expect(sql::STATES_ON, params![host])?)
}

/// The states of the servers on a host.
///
/// # Errors
/// Store errors only.
pub fn states_on(tx: &mut Tx<'_>, host: &HostName) -> Result<Vec<States>, Error> {
    let read = |row: &Row| {
        Ok(States {
            id: row.id("id")?,
            vm_state: VmState::parse(row.text("vm_state")?)?,
            task_state: row.text_opt("task_state")?.map(TaskState::parse).transpose()?,
            launched: row.time_opt("launched_at")?.is_some(),
        })
    };
    tx.rows(sql::STATES_ON, params![host])?.iter().map(read).collect()
}

/// Changes the flavor.
///
/// # Errors
/// Store errors only.
pub fn set_flavor(
    tx: &mut Tx<'_>,
    server: &Server,
    flavor: &FlavorOf,
    now: Timestamp,
) -> Result<(), Error> {
    counted::resize(tx, server.id, flavor.vcpus, flavor.ram)?;
    let spec = server.spec.clone().with_flavor(flavor.clone());
    let params = params![server.id, model::to_text(&spec)?, flavor.vcpus, flavor.ram, now];
    tx.defer(sql::SET_FLAVOR, params)?;
    Ok(())
}

/// Sets a server to `ERROR` with a fault, and clears its task state.
///
/// # Errors
/// Store errors only.
pub fn set_error(
    tx: &mut Tx<'_>,
    id: ServerId,
    fault: &Fault,
    now: Timestamp,
) -> Result<(), Error> {
    counted::add_back(tx, id)?;
    tx.defer(sql::SET_ERROR, params![id, model::to_text(fault)?, now])?;
    Ok(())
}

/// Updates the fields of `PUT /servers/{id}`.
///
/// # Errors
/// Store errors only.
pub fn set_text(
    tx: &mut Tx<'_>,
    id: ServerId,
    name: &str,
    description: Option<&str>,
    spec: &Spec,
    now: Timestamp,
) -> Result<(), Error> {
    let (text, has_files) = (model::to_text(spec)?, !spec.files.is_empty());
    tx.defer(sql::SET_TEXT, params![id, name, description, text, now, has_files])?;
    Ok(())
}

/// Replaces the metadata.
///
/// # Errors
/// Store errors only.
pub fn set_metadata(
    tx: &mut Tx<'_>,
    id: ServerId,
    metadata: &std::collections::BTreeMap<String, String>,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(sql::SET_METADATA, params![id, model::to_text(metadata)?, now])?;
    Ok(())
}

/// Replaces the tags.
///
/// # Errors
/// Store errors only.
pub fn set_tags(
    tx: &mut Tx<'_>,
    id: ServerId,
    tags: &[String],
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(sql::SET_TAGS, params![id, model::to_text(&tags)?, now])?;
    Ok(())
}

/// Locks or unlocks a server. As in Nova, `updated_at` does not change.
///
/// # Errors
/// Store errors only.
pub fn set_lock(tx: &mut Tx<'_>, id: ServerId, lock: Option<&Lock>) -> Result<(), Error> {
    let by = lock.map(|lock| lock.by.as_str());
    let reason = lock.and_then(|lock| lock.reason.as_deref());
    tx.defer(sql::SET_LOCK, params![id, by, reason])?;
    Ok(())
}

/// By host: the number of servers, and the number of those with a task that loads the host.
///
/// # Errors
/// Store errors only.
pub fn loads(tx: &mut Tx<'_>) -> Result<Vec<(HostName, i64, i64)>, Error> {
    let load = |row: &Row| Ok((row.host("host")?, row.int("count")?, row.int("busy")?));
    tx.rows(sql::LOADS, params![])?.iter().map(load).collect()
}

/// Deletes the row. The caller must have released the server's resources. Copies the row without injected files to the
/// deleted servers, removes the server from its group and ends its tokens for consoles. Returns true if the server has ports, which must
/// be deleted too.
///
/// # Errors
/// Store errors only.
pub fn delete(tx: &mut Tx<'_>, id: ServerId) -> Result<bool, Error> {
    counted::subtract(tx, id)?;
    deleted::keep(tx, id, kilonova_wire::time::now())?;
    super::server_groups::leave(tx, id)?;
    consoles::end(tx, id)?;
    let Some(row) = tx.row(sql::DELETE, params![id])? else { return Ok(false) };
    files::remove_deleted(tx, id, row.text("spec")?)?;
    networked(&row)
}

pub fn shape(text: impl Into<String>) -> Error {
    Error::Store(kilonova_store::Error::Shape(text.into()))
}

fn read(row: &Row) -> Result<Server, Error> {
    Ok(Server {
        seq: row.int("seq")?,
        id: row.id("id")?,
        project_id: row.string("project_id")?,
        user_id: row.string("user_id")?,
        name: row.string("name")?,
        description: row.string_opt("description")?,
        host: row.host_opt("host")?,
        vm_state: VmState::parse(row.text("vm_state")?)?,
        task_state: row.text_opt("task_state")?.map(TaskState::parse).transpose()?,
        power_state: row.int("power_state")?.try_into()?,
        spec: model::from_text(row.text("spec")?)?,
        metadata: model::from_text(row.text("metadata")?)?,
        tags: model::from_text(row.text("tags")?)?,
        fault: row.text_opt("fault")?.map(model::from_text).transpose()?,
        created_at: row.time("created_at")?,
        updated_at: row.time("updated_at")?,
        launched_at: row.time_opt("launched_at")?,
        lock: row
            .string_opt("locked_by")?
            .map(|by| Ok::<_, Error>(Lock { by, reason: row.string_opt("locked_reason")? }))
            .transpose()?,
        machine_type: row.string_opt("machine_type")?,
        deleted_at: None,
    })
}
