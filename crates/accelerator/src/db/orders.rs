//! Rows of `device_orders`: orders to hosts about devices, and their results. Also the requests
//! that wait for a bitstream.

use jiff::Timestamp;
use kilonova_ids::{
    ArqId, AttachHandleId, ConsumerId, DeployableId, DeviceId, HostName, ImageId, OperationId,
    ProviderId, ServerId,
};
use kilonova_node_api::Order;
use kilonova_store::{Error, Row, Tx, params, statements};

use super::profiles::{Group, groups};
use crate::states::{OrderState, OrderTask};

/// A new order.
pub(crate) struct NewOrder<'a> {
    pub uuid: OperationId,
    pub host: &'a HostName,
    pub task: OrderTask,
    /// Address of the device.
    pub address: &'a str,
    pub device: DeviceId,
    pub deployable: DeployableId,
    pub handle: Option<AttachHandleId>,
    pub server: Option<ServerId>,
    pub image: Option<ImageId>,
    /// The function that the image loads, according to the image.
    pub function: Option<&'a str>,
    /// The serialized task for the host.
    pub body: String,
    pub user_id: Option<&'a str>,
    pub request_id: Option<&'a str>,
}

/// A row of `device_orders`.
#[derive(Debug, Clone)]
pub(crate) struct OrderRow {
    pub id: i64,
    pub uuid: OperationId,
    pub host: HostName,
    pub task: OrderTask,
    pub address: String,
    pub device: DeviceId,
    pub deployable: DeployableId,
    pub handle: Option<AttachHandleId>,
    pub server: Option<ServerId>,
    pub image: Option<ImageId>,
    pub function: Option<String>,
    pub state: OrderState,
    pub message: Option<String>,
    pub output: Option<String>,
    pub user_id: Option<String>,
    pub request_id: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Option<Timestamp>,
}

/// The filters of a list.
#[derive(Debug, Clone, Default)]
pub(crate) struct OrderFilter {
    pub host: Option<HostName>,
    pub state: Option<OrderState>,
    /// Only orders before this one.
    pub before: Option<i64>,
}

/// Selects an [`OrderRow`].
macro_rules! select {
    ($condition:literal) => {
        concat!(
            "SELECT id, uuid, host, task, address, device_id, deployable_id, handle_id, server_id,
            image_id, function_id, state, message, output, user_id, request_id, created_at,
            updated_at FROM device_orders ",
            $condition
        )
    };
}

statements! {
    /// Inserts an order that is not in any generation of documents yet.
    INSERT = "INSERT INTO device_orders (uuid, host, task, address, device_id, deployable_id,
        handle_id, server_id, image_id, function_id, body, state, open_key, user_id, request_id,
        created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, 'open', ?12, ?13, ?14, ?15)";
    /// Hosts with orders that are not in any generation yet.
    UNANNOUNCED = "SELECT DISTINCT host FROM device_orders WHERE state = 'open' AND generation IS NULL
        ORDER BY host";
    /// Hosts with orders that have no result yet.
    AWAITED_HOSTS = "SELECT DISTINCT host FROM device_orders WHERE state = 'open' AND generation > 0";
    /// Sets the generation of a host's new orders.
    ANNOUNCE = "UPDATE device_orders SET generation = ?2
        WHERE host = ?1 AND state = 'open' AND generation IS NULL";
    /// The orders of a host after a generation.
    SINCE = "SELECT uuid, generation, server_id, address, body FROM device_orders
        WHERE host = ?1 AND state = 'open' AND generation > ?2 ORDER BY generation, id";
    /// An order in a host's documents that programs a device with an image.
    PROGRAM_WITH = "SELECT uuid FROM device_orders
        WHERE host = ?1 AND state = 'open' AND generation > 0 AND image_id = ?2 AND task = 'program' LIMIT 1";
    /// One order.
    BY_UUID = select!("WHERE uuid = ?1");
    /// All orders, newest first.
    LIST = select!("WHERE (CAST(?1 AS TEXT) IS NULL OR host = ?1)
          AND (CAST(?2 AS TEXT) IS NULL OR state = ?2)
          AND (CAST(?3 AS BIGINT) IS NULL OR id < ?3) ORDER BY id DESC LIMIT ?4");
    /// Ends an order.
    CLOSE = "UPDATE device_orders SET state = ?2, open_key = NULL, message = ?3, output = ?4,
        updated_at = ?5 WHERE uuid = ?1 AND state = 'open'";
    /// Writes an open order, so that closing it conflicts with a transaction that depends on it.
    TOUCH_OPEN = "UPDATE device_orders SET open_key = open_key WHERE uuid = ?1 AND state = 'open'";
    /// Deletes ended orders that were created before a time.
    FORGET = "DELETE FROM device_orders WHERE state <> 'open' AND created_at < ?1";
    /// The open order to program a device.
    OPEN_ON_DEVICE = "SELECT uuid, image_id FROM device_orders WHERE open_key = ?1";
    /// Writes a device's handles, so that a transaction that assigns one conflicts with one that orders its
    /// programming.
    TOUCH_HANDLES = "UPDATE attach_handles SET updated_at = updated_at WHERE deployable_id IN
        (SELECT id FROM deployables WHERE device_id = ?1)";
    /// The number of a device's handles that are not free and do not belong to this consumer.
    OTHERS_ON_DEVICE = "SELECT COUNT(*) AS others FROM attach_handles h
        JOIN deployables p ON p.id = h.deployable_id
        WHERE p.device_id = ?1 AND h.state <> 'free' AND (h.arq_id IS NULL OR NOT EXISTS
          (SELECT 1 FROM arqs a WHERE a.uuid = h.arq_id AND a.consumer_id = CAST(?2 AS TEXT)))";
    /// A consumer's requests whose profiles name bitstreams, with their devices.
    TO_PROGRAM = "SELECT a.uuid, a.group_id, f.groups_json, a.server_id, p.uuid AS deployable_id,
        p.driver, p.bitstream_id, d.id AS device_row, d.uuid AS device_id, d.address, d.host,
        (SELECT MIN(t.value) FROM attributes t WHERE t.deployable_id = p.id
            AND t.name = 'function_id' AND t.reported = 1) AS reported_function
        FROM arqs a JOIN device_profiles f ON f.uuid = a.profile_id
        JOIN deployables p ON p.provider_id = a.provider_id JOIN devices d ON d.id = p.device_id
        WHERE a.consumer_id = ?1 AND a.state = 'Bound' AND f.groups_json LIKE '%accel:%'
        ORDER BY a.ordinal";
    /// Makes a request wait for an order.
    AWAIT = "UPDATE arqs SET state = 'BindStarted', awaits = ?2, updated_at = ?3 WHERE uuid = ?1";
    /// Requests that wait for an order.
    AWAITING = "SELECT uuid, internal FROM arqs WHERE awaits = ?1 ORDER BY id";
    /// Binds a request whose order has succeeded.
    BIND_WAITING = "UPDATE arqs SET state = 'Bound', awaits = NULL, updated_at = ?2 WHERE uuid = ?1";
    /// Fails a request whose order has failed. It stays with its instance and has no handle.
    FAIL = "UPDATE arqs SET state = 'BindFailed', awaits = NULL, consumer_id = NULL, ordinal = NULL,
        updated_at = ?2 WHERE uuid = ?1";
    /// The device and the driver of a deployable, for an order from the API.
    TARGET = "SELECT d.id AS device_row, d.uuid AS device_id, d.address, d.host, p.driver, p.present FROM deployables p
        JOIN devices d ON d.id = p.device_id WHERE p.uuid = ?1";
    /// Sets the bitstream of all deployables of a device.
    SET_BITSTREAM = "UPDATE deployables SET bitstream_id = ?2, function_id = ?3, updated_at = ?4
        WHERE device_id = (SELECT id FROM devices WHERE uuid = ?1)";
    /// Clears the bitstream of a deployable, unless an order programs its device.
    CLEAR_BITSTREAM = "UPDATE deployables SET bitstream_id = NULL, function_id = NULL, updated_at = ?2
        WHERE id = ?1 AND bitstream_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM device_orders o
          JOIN devices d ON d.uuid = o.open_key WHERE d.id = deployables.device_id)";
    /// The providers of a device and the functions that their host reports.
    FUNCTIONS_OF = "SELECT p.provider_id, p.driver, (SELECT MIN(t.value) FROM attributes t
          WHERE t.deployable_id = p.id AND t.name = 'function_id' AND t.reported = 1)
            AS reported_function
        FROM deployables p JOIN devices d ON d.id = p.device_id WHERE d.uuid = ?1
        ORDER BY p.provider_id";
}

/// A request whose device may have to be programmed first.
pub(crate) struct ToProgram {
    pub arq: ArqId,
    pub group: usize,
    pub groups: Vec<Group>,
    pub server: Option<ServerId>,
    pub deployable: DeployableId,
    pub driver: String,
    pub bitstream_id: Option<String>,
    pub device_row: i64,
    pub device: DeviceId,
    pub address: String,
    pub host: HostName,
    /// The function that the host reports.
    pub function: Option<String>,
}

/// A device that can be programmed.
pub(crate) struct Target {
    pub device_row: i64,
    pub device: DeviceId,
    pub address: String,
    pub host: HostName,
    pub driver: String,
    pub present: bool,
}

fn read(row: &Row) -> Result<OrderRow, Error> {
    Ok(OrderRow {
        id: row.int("id")?,
        uuid: row.id("uuid")?,
        host: row.host("host")?,
        task: OrderTask::read(row, "task")?,
        address: row.string("address")?,
        device: row.id("device_id")?,
        deployable: row.id("deployable_id")?,
        handle: row.id_opt("handle_id")?,
        server: row.id_opt("server_id")?,
        image: row.id_opt("image_id")?,
        function: row.string_opt("function_id")?,
        state: OrderState::read(row, "state")?,
        message: row.string_opt("message")?,
        output: row.string_opt("output")?,
        user_id: row.string_opt("user_id")?,
        request_id: row.string_opt("request_id")?,
        created_at: row.time("created_at")?,
        updated_at: row.time_opt("updated_at")?,
    })
}

pub(crate) fn insert(tx: &mut Tx<'_>, new: &NewOrder<'_>, now: Timestamp) -> Result<(), Error> {
    let key = new.handle.map_or_else(|| new.device.to_string(), |handle| handle.to_string());
    tx.defer(
        INSERT,
        params![
            new.uuid,
            new.host,
            new.task,
            new.address,
            new.device,
            new.deployable,
            new.handle,
            new.server,
            new.image,
            new.function,
            &new.body,
            key,
            new.user_id,
            new.request_id,
            now
        ],
    )?;
    Ok(())
}

/// True if an order is open. It stays open until the transaction ends, because a report that ends it conflicts.
pub(crate) fn is_open(tx: &mut Tx<'_>, order: OperationId) -> Result<bool, Error> {
    Ok(tx.execute(TOUCH_OPEN, params![order])? > 0)
}

pub(crate) fn by_uuid(tx: &mut Tx<'_>, uuid: OperationId) -> Result<Option<OrderRow>, Error> {
    tx.row(BY_UUID, params![uuid])?.as_ref().map(read).transpose()
}

pub(crate) fn list(
    tx: &mut Tx<'_>,
    filter: &OrderFilter,
    limit: i64,
) -> Result<Vec<OrderRow>, Error> {
    let host = filter.host.clone();
    tx.rows(LIST, params![host, filter.state, filter.before, limit])?.iter().map(read).collect()
}

/// Hosts with orders that are not in any generation of documents yet.
pub(crate) fn unannounced(tx: &mut Tx<'_>) -> Result<Vec<HostName>, Error> {
    tx.rows(UNANNOUNCED, params![])?.iter().map(|row| row.host("host")).collect()
}

/// The hosts that have received orders, or will, and have not reported their results.
pub(crate) fn awaited_hosts(tx: &mut Tx<'_>) -> Result<Vec<HostName>, Error> {
    tx.rows(AWAITED_HOSTS, params![])?.iter().map(|row| row.host("host")).collect()
}

/// Puts the new orders of a host into a generation of its documents.
pub(crate) fn announce(tx: &mut Tx<'_>, host: &HostName, generation: i64) -> Result<(), Error> {
    tx.defer(ANNOUNCE, params![host, generation])?;
    Ok(())
}

/// Announces [`since`].
pub(crate) fn expect_since(tx: &mut Tx<'_>, host: &HostName, generation: i64) -> Result<(), Error> {
    tx.expect(SINCE, params![host, generation])
}

/// The open orders of a host after a generation.
pub(crate) fn since(
    tx: &mut Tx<'_>,
    host: &HostName,
    generation: i64,
) -> Result<Vec<Order>, Error> {
    let read = |row: &Row| {
        let task = serde_json::from_str(row.text("body")?)
            .map_err(|error| Error::Shape(format!("device order: {error}")))?;
        Ok(Order {
            id: row.id("uuid")?,
            generation: row.int("generation")?,
            server: row.id_opt("server_id")?,
            device: row.string("address")?,
            task,
        })
    };
    tx.rows(SINCE, params![host, generation])?.iter().map(read).collect()
}

/// True if an order in a host's documents programs a device with an image.
pub(crate) fn program_with(
    tx: &mut Tx<'_>,
    host: &HostName,
    image: ImageId,
) -> Result<bool, Error> {
    Ok(tx.row(PROGRAM_WITH, params![host, image])?.is_some())
}

/// Ends an open order.
pub(crate) fn close(
    tx: &mut Tx<'_>,
    order: OperationId,
    state: OrderState,
    message: Option<String>,
    output: Option<String>,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(CLOSE, params![order, state, message, output, now])?;
    Ok(())
}

/// Deletes ended orders that were created before a time; returns their number.
pub(crate) fn forget(tx: &mut Tx<'_>, before: Timestamp) -> Result<u64, Error> {
    tx.execute(FORGET, params![before])
}

/// A consumer's bound requests whose profiles name bitstreams, with their devices.
pub(crate) fn to_program(tx: &mut Tx<'_>, consumer: ConsumerId) -> Result<Vec<ToProgram>, Error> {
    let read = |row: &Row| {
        Ok(ToProgram {
            arq: row.id("uuid")?,
            group: usize::try_from(row.int("group_id")?).unwrap_or(usize::MAX),
            groups: groups(row)?,
            server: row.id_opt("server_id")?,
            deployable: row.id("deployable_id")?,
            driver: row.string("driver")?,
            bitstream_id: row.string_opt("bitstream_id")?,
            device_row: row.int("device_row")?,
            device: row.id("device_id")?,
            address: row.string("address")?,
            host: row.host("host")?,
            function: row.string_opt("reported_function")?,
        })
    };
    tx.rows(TO_PROGRAM, params![consumer])?.iter().map(read).collect()
}

/// The device of a deployable that is about to be programmed.
pub(crate) fn target(tx: &mut Tx<'_>, deployable: DeployableId) -> Result<Option<Target>, Error> {
    let read = |row: &Row| {
        Ok(Target {
            device_row: row.int("device_row")?,
            device: row.id("device_id")?,
            address: row.string("address")?,
            host: row.host("host")?,
            driver: row.string("driver")?,
            present: row.bool("present")?,
        })
    };
    tx.row(TARGET, params![deployable])?.as_ref().map(read).transpose()
}

/// The open order to program a device, with its image.
pub(crate) fn open_on(
    tx: &mut Tx<'_>,
    device: DeviceId,
) -> Result<Option<(OperationId, Option<ImageId>)>, Error> {
    let read = |row: Row| Ok((row.id("uuid")?, row.id_opt("image_id")?));
    tx.row(OPEN_ON_DEVICE, params![device])?.map(read).transpose()
}

/// Number of handles of a device that other consumers own or that are dirty.
pub(crate) fn others_on(
    tx: &mut Tx<'_>,
    device_row: i64,
    consumer: Option<ConsumerId>,
) -> Result<i64, Error> {
    tx.row(OTHERS_ON_DEVICE, params![device_row, consumer])?.map_or(Ok(0), |row| row.int("others"))
}

/// Requests that wait for an order, and whether this process's own compute service created them.
pub(crate) fn awaiting(tx: &mut Tx<'_>, order: OperationId) -> Result<Vec<(ArqId, bool)>, Error> {
    let read = |row: &Row| Ok((row.id("uuid")?, row.bool("internal")?));
    tx.rows(AWAITING, params![order])?.iter().map(read).collect()
}

/// The providers of a device, with the driver and the function that the host reports.
pub(crate) fn functions_of(
    tx: &mut Tx<'_>,
    device: DeviceId,
) -> Result<Vec<(ProviderId, String, Option<String>)>, Error> {
    let read = |row: &Row| {
        let function = row.string_opt("reported_function")?;
        Ok((row.id("provider_id")?, row.string("driver")?, function))
    };
    tx.rows(FUNCTIONS_OF, params![device])?.iter().map(read).collect()
}

/// Makes a transaction that assigns a handle of the device conflict with one that orders its programming.
pub(crate) fn touch_handles(tx: &mut Tx<'_>, device_row: i64) -> Result<(), Error> {
    tx.defer(TOUCH_HANDLES, params![device_row])?;
    Ok(())
}

/// Makes a bound request wait for an order.
pub(crate) fn await_order(
    tx: &mut Tx<'_>,
    arq: ArqId,
    order: OperationId,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(AWAIT, params![arq, order, now])?;
    Ok(())
}

/// Binds a request whose order has succeeded.
pub(crate) fn bind_waiting(tx: &mut Tx<'_>, arq: ArqId, now: Timestamp) -> Result<(), Error> {
    tx.defer(BIND_WAITING, params![arq, now])?;
    Ok(())
}

/// Fails a request whose order has failed. The caller frees its handle.
pub(crate) fn fail(tx: &mut Tx<'_>, arq: ArqId, now: Timestamp) -> Result<(), Error> {
    tx.defer(FAIL, params![arq, now])?;
    Ok(())
}

/// Sets the bitstream of all deployables of a device; `image` is `None` if the content is unknown.
pub(crate) fn set_bitstream(
    tx: &mut Tx<'_>,
    device: DeviceId,
    image: Option<ImageId>,
    function: Option<&str>,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(SET_BITSTREAM, params![device, image, function, now])?;
    Ok(())
}

/// Clears the bitstream of a deployable, unless an order programs its device.
pub(crate) fn clear_bitstream(
    tx: &mut Tx<'_>,
    deployable: i64,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(CLEAR_BITSTREAM, params![deployable, now])?;
    Ok(())
}
