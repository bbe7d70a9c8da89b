//! Device profiles of ports (a port of kind `accelerator-direct` is a device of its server), and the resources that
//! ports request.

use kilonova_accelerator::ledger as devices;
use kilonova_compute_db::servers::{FlavorOf, Server};
use kilonova_ids::PortId;
use kilonova_store::Tx;

use super::networks::Networks;
use crate::Error;
use crate::boot::{ProfileGroups, Profiles};

/// The profile of a port's device, which must request exactly one device; otherwise the error message.
pub(super) fn of_port(
    tx: &mut Tx<'_>,
    port: PortId,
    name: Option<&str>,
) -> Result<Result<ProfileGroups, String>, Error> {
    let Some(name) = name else {
        let words = format!("Device profile name None: No device profile for port {port}.");
        return Ok(Err(words));
    };
    let Some(profile) = devices::profile_by_name(tx, name)? else {
        let words =
            format!("Device profile name {name}: Expected 1 device profile but got nothing.");
        return Ok(Err(words));
    };
    let found = ProfileGroups { id: profile.id, groups: profile.groups, port: Some(port) };
    if found.count() != 1 {
        let words =
            format!("Device profile name {name}: request multiple devices for single port.");
        return Ok(Err(words));
    }
    Ok(Ok(found))
}

/// The profile that a flavor names, if any; the error message if that profile does not exist.
///
/// # Errors
/// Store errors only.
pub fn of_flavor(
    tx: &mut Tx<'_>,
    flavor: &FlavorOf,
) -> Result<Result<Option<ProfileGroups>, String>, Error> {
    let Some(name) = flavor.extra_specs.get("accel:device_profile") else { return Ok(Ok(None)) };
    let found = devices::profile_by_name(tx, name)?;
    let found = found.map(|found| ProfileGroups { id: found.id, groups: found.groups, port: None });
    Ok(found.map(Some).ok_or_else(|| format!("Device profile {name} could not be found.")))
}

/// The profiles of an existing server, from its flavor and its ports, and the resources that the ports request; or the
/// error message.
///
/// # Errors
/// Store errors only.
pub fn profiles_of(
    tx: &mut Tx<'_>,
    networks: &dyn Networks,
    server: &Server,
    flavor: &FlavorOf,
) -> Result<Result<Profiles, String>, Error> {
    let flavor = match of_flavor(tx, flavor)? {
        Ok(found) => found,
        Err(why) => return Ok(Err(why)),
    };
    let mut profiles = Profiles { flavor, ..Profiles::default() };
    if server.spec.networked {
        for (port, profile) in networks.device_profiles(tx, server.id)? {
            match of_port(tx, port, profile.as_deref())? {
                Ok(found) => profiles.ports.push(found),
                Err(why) => return Ok(Err(why)),
            }
        }
        profiles.resources = networks.resources(tx, server.id)?;
    }
    Ok(Ok(profiles))
}
