//! Determines which devices must be programmed before their guests get them, and with which
//! bitstream.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kilonova_ids::{
    ArqId, ConsumerId, DeployableId, DeviceId, HostName, ImageId, OperationId, ServerId,
    parse_uuid_like,
};
use kilonova_node_api::Task;
use kilonova_placement::{World, ledger as placement};
use kilonova_store::Tx;
use kilonova_wire::time;

use super::{Bitstream, Bitstreams};
use crate::Error;
use crate::app::grammar::shown;
use crate::db::orders::{self, NewOrder, ToProgram};
use crate::db::profiles::Group;
use crate::db::{events, withheld};
use crate::ledger::Actor;
use crate::states::OrderTask;

const BITSTREAM: &str = "accel:bitstream_id";
const FUNCTION: &str = "accel:function_id";
const CLASS: &str = "resources:FPGA";

/// Drivers of programmable cards.
const PROGRAMMABLE: [&str; 2] = ["intel", "xilinx"];

/// Orders the programming of the devices just bound to a consumer, if the requests' profiles
/// require it and the bitstream is not loaded yet. The requests then wait (`BindStarted`). Returns
/// true if at least one request waits.
///
/// # Errors
/// [`Error::DeviceInUse`] if another consumer uses a part of the device, [`Error::NoBitstream`],
/// [`Error::NotProgrammable`].
pub fn prepare(
    tx: &mut Tx<'_>,
    world: &World,
    bitstreams: Option<&dyn Bitstreams>,
    actor: &Actor,
    consumer: ConsumerId,
) -> Result<bool, Error> {
    let now = time::now();
    let mut ordered: BTreeMap<DeviceId, (OperationId, ImageId)> = BTreeMap::new();
    for one in orders::to_program(tx, consumer)? {
        let Some(group) = one.groups.get(one.group) else { continue };
        let Some(bitstream) = requested_bitstream(tx, bitstreams, group)? else { continue };
        if let Some((order, image)) = ordered.get(&one.device) {
            if *image != bitstream.image {
                return Err(Error::NoBitstream(format!(
                    "Device {} of host {} cannot be programmed with both {image} and {}.",
                    one.address, one.host, bitstream.image
                )));
            }
            await_order(tx, one.arq, *order, now)?;
            continue;
        }
        if is_loaded(&one, group, &bitstream) {
            continue;
        }
        if !PROGRAMMABLE.contains(&one.driver.as_str()) {
            return Err(Error::NotProgrammable { uuid: one.deployable, driver: one.driver });
        }
        orders::touch_handles(tx, one.device_row)?;
        if orders::others_on(tx, one.device_row, Some(consumer))? > 0 {
            return Err(in_use(&one.address, &one.host));
        }
        let order = insert(
            tx,
            &Job {
                host: &one.host,
                address: &one.address,
                device: one.device,
                deployable: one.deployable,
                driver: &one.driver,
                server: one.server,
                bitstream: &bitstream,
                actor,
            },
            now,
        )?;
        await_order(tx, one.arq, order, now)?;
        ordered.insert(one.device, (order, bitstream.image));
    }
    for device in ordered.keys() {
        withhold(tx, world, *device)?;
    }
    Ok(!ordered.is_empty())
}

/// Checks that the bitstreams of a profile are available.
///
/// # Errors
/// [`Error::NoBitstream`] with the reason.
pub fn check(
    tx: &mut Tx<'_>,
    bitstreams: Option<&dyn Bitstreams>,
    groups: &[Group],
) -> Result<(), Error> {
    for group in groups {
        requested_bitstream(tx, bitstreams, group)?;
    }
    Ok(())
}

/// Orders the programming of a deployable on behalf of an administrator.
pub(crate) fn program_deployable(
    tx: &mut Tx<'_>,
    world: &World,
    bitstreams: Option<&dyn Bitstreams>,
    actor: &Actor,
    deployable: DeployableId,
    image: ImageId,
) -> Result<OperationId, Error> {
    let target = orders::target(tx, deployable)?
        .ok_or_else(|| Error::not_found("Deployable", "uuid", deployable))?;
    if !PROGRAMMABLE.contains(&target.driver.as_str()) {
        return Err(Error::NotProgrammable { uuid: deployable, driver: target.driver });
    }
    if !target.present {
        return Err(Error::NoBitstream(format!(
            "Deployable {deployable} cannot be programmed: host {} no longer has it.",
            target.host
        )));
    }
    let bitstream = by_id(tx, bitstreams, image)?;
    orders::touch_handles(tx, target.device_row)?;
    if orders::open_on(tx, target.device)?.is_some()
        || orders::others_on(tx, target.device_row, None)? > 0
    {
        return Err(in_use(&target.address, &target.host));
    }
    let job = Job {
        host: &target.host,
        address: &target.address,
        device: target.device,
        deployable,
        driver: &target.driver,
        server: None,
        bitstream: &bitstream,
        actor,
    };
    let order = insert(tx, &job, time::now())?;
    withhold(tx, world, target.device)?;
    Ok(order)
}

/// Updates the reserved amounts of a device in Placement after an order to program it has begun or
/// ended, so that the scheduler does not offer handles that cannot be claimed.
pub(super) fn withhold(tx: &mut Tx<'_>, world: &World, device: DeviceId) -> Result<(), Error> {
    let providers = orders::functions_of(tx, device)?.into_iter().map(|(provider, ..)| provider);
    let withheld = withheld::each(tx, providers, [])?;
    Ok(placement::reserve_each(tx, world, &withheld)?)
}

/// Calls [`withhold`] for the device of an order that is still open, because the requester of the
/// order has released the device.
pub(crate) fn withhold_programmed(
    tx: &mut Tx<'_>,
    world: &World,
    order: OperationId,
) -> Result<(), Error> {
    if !orders::is_open(tx, order)? {
        return Ok(());
    }
    match orders::by_uuid(tx, order)? {
        Some(order) => withhold(tx, world, order.device),
        None => Ok(()),
    }
}

/// The trait of a loaded function in upstream's spelling.
pub(crate) fn function_trait(driver: &str, function: &str) -> Option<String> {
    let kept = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let spell = |text: &str| text.chars().filter(|c| *c != '-').map(kept).collect::<String>();
    let name = format!("{PREFIX}{}_{}", spell(driver), spell(function));
    (!function.is_empty() && name.len() <= 255).then_some(name)
}

/// The prefix of the traits of loaded functions.
const PREFIX: &str = "CUSTOM_FPGA_FUNCTION_ID_";

/// Makes a request wait for an order, and defers its event for an external Nova.
fn await_order(
    tx: &mut Tx<'_>,
    arq: ArqId,
    order: OperationId,
    now: Timestamp,
) -> Result<(), Error> {
    orders::await_order(tx, arq, order, now)?;
    Ok(events::defer(tx, arq)?)
}

struct Job<'a> {
    host: &'a HostName,
    address: &'a str,
    device: DeviceId,
    deployable: DeployableId,
    driver: &'a str,
    server: Option<ServerId>,
    bitstream: &'a Bitstream,
    actor: &'a Actor,
}

fn insert(tx: &mut Tx<'_>, job: &Job<'_>, now: Timestamp) -> Result<OperationId, Error> {
    let task = Task::Program { driver: job.driver.to_owned(), image: job.bitstream.image };
    let order = NewOrder {
        uuid: OperationId::new_v4(),
        host: job.host,
        task: OrderTask::Program,
        address: job.address,
        device: job.device,
        deployable: job.deployable,
        handle: None,
        server: job.server,
        image: Some(job.bitstream.image),
        function: job.bitstream.function.as_deref(),
        body: super::clean::body(&task)?,
        user_id: job.actor.user_id.as_deref(),
        request_id: job.actor.request_id.as_deref(),
    };
    orders::insert(tx, &order, now)?;
    Ok(order.uuid)
}

fn in_use(address: &str, host: &HostName) -> Error {
    Error::DeviceInUse { device: address.to_owned(), host: host.clone() }
}

/// True if the bitstream is already loaded.
fn is_loaded(one: &ToProgram, group: &Group, bitstream: &Bitstream) -> bool {
    let digits = |text: &str| {
        text.chars().filter(char::is_ascii_hexdigit).collect::<String>().to_ascii_lowercase()
    };
    let loaded = one.bitstream_id.as_deref() == Some(bitstream.image.to_string().as_str());
    let shows = match (named(group, FUNCTION), &one.function) {
        (Some(wanted), Some(shown)) => digits(wanted) == digits(shown),
        _ => false,
    };
    loaded || shows
}

/// The value of a key of a group. An empty one names nothing, as in upstream's
/// `objects/extarq/fpga_ext_arq.py`.
fn named<'a>(group: &'a Group, key: &str) -> Option<&'a String> {
    group.get(key).filter(|text| !text.is_empty())
}

/// The bitstream that a group of a profile requests.
fn requested_bitstream(
    tx: &mut Tx<'_>,
    bitstreams: Option<&dyn Bitstreams>,
    group: &Group,
) -> Result<Option<Bitstream>, Error> {
    if !group.contains_key(CLASS) {
        return Ok(None);
    }
    match (named(group, BITSTREAM), named(group, FUNCTION)) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(Error::NoBitstream(format!(
            "A group of a device profile may have {BITSTREAM} or {FUNCTION}, not both."
        ))),
        (Some(text), None) => {
            let image = parse_uuid_like(text).ok_or_else(|| {
                Error::NoBitstream(format!(
                    "{BITSTREAM} {} is not the uuid of an image.",
                    shown(text)
                ))
            })?;
            by_id(tx, bitstreams, image).map(Some)
        }
        (None, Some(function)) => {
            let source = bitstreams.ok_or_else(no_service)?;
            let found = source.by_function(tx, function)?;
            let [one] = found.as_slice() else {
                return Err(Error::NoBitstream(format!(
                    "{} public images have the property {FUNCTION} {}; there must be one.",
                    found.len(),
                    shown(function)
                )));
            };
            ready(one.clone()).map(Some)
        }
    }
}

fn by_id(
    tx: &mut Tx<'_>,
    bitstreams: Option<&dyn Bitstreams>,
    image: ImageId,
) -> Result<Bitstream, Error> {
    let source = bitstreams.ok_or_else(no_service)?;
    let found = source.by_id(tx, image)?;
    ready(found.ok_or_else(|| Error::NoBitstream(format!("Image {image} could not be found.")))?)
}

fn ready(bitstream: Bitstream) -> Result<Bitstream, Error> {
    if bitstream.ready {
        return Ok(bitstream);
    }
    Err(Error::NoBitstream(format!("Image {} has no data yet.", bitstream.image)))
}

fn no_service() -> Error {
    Error::NoBitstream(
        "Bitstreams come from the image service, which this controller does not run.".into(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_has_a_trait_in_upstreams_spelling() {
        assert_eq!(
            function_trait("intel", "d8424dc4-a4a3-c413-f89e-433683f9040b").as_deref(),
            Some("CUSTOM_FPGA_FUNCTION_ID_INTEL_D8424DC4A4A3C413F89E433683F9040B")
        );
        assert_eq!(
            function_trait("xilinx", "a b").as_deref(),
            Some("CUSTOM_FPGA_FUNCTION_ID_XILINX_A_B")
        );
        assert_eq!(function_trait("xilinx", ""), None);
        assert_eq!(function_trait("xilinx", &"f".repeat(300)), None);
    }
}
