//! The security groups of a port, and the constraints of `port_security_enabled`.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kilonova_access::Caller;
use kilonova_ids::{SecurityGroupId, parse_uuid_like};
use kilonova_store::Tx;
use kilonova_wire::Refusal;
use kilonova_wire::refusal::Kind;
use serde_json::{Value, json};

use super::super::groups;
use crate::Error;
use crate::address;
use crate::error::{not_found, refused};
use crate::record::Body;

/// Refuses an address pair that occurs twice, in any spelling. A pair without a MAC address uses the port's, as in
/// `neutron/db/allowedaddresspairs_db.py`.
pub(super) fn check_pairs(body: &Body, mac: Option<&str>) -> Result<(), Refusal> {
    let pairs = body.get("allowed_address_pairs").and_then(Value::as_array);
    let mut seen = BTreeSet::new();
    for pair in pairs.into_iter().flatten() {
        let mac = pair["mac_address"].as_str().or(mac);
        let ip = pair["ip_address"].as_str().unwrap_or_default();
        if !seen.insert((mac, address::spelled_either(ip))) {
            return Err(refused(
                Kind::BadRequest,
                "DuplicateAddressPairInRequest",
                format!(
                    "Request contains duplicate address pair: mac_address {} ip_address {ip}.",
                    mac.unwrap_or("None")
                ),
            ));
        }
    }
    Ok(())
}

/// Sets a port's groups: the requested ones, or the project's default group; no groups without port security. An update
/// that disables port security must also remove the groups, as in `_portsec_ext_port_update_processing` of
/// `neutron/plugins/ml2/plugin.py`.
pub(super) fn secure(
    tx: &mut Tx<'_>,
    caller: &Caller,
    project: &str,
    sent: &Body,
    body: &mut Body,
    now: Timestamp,
) -> Result<(), Error> {
    let secure = body["port_security_enabled"] == true;
    let named = sent.get("security_groups").is_some_and(|value| !value.is_null());
    let has = body["security_groups"].as_array().is_some_and(|groups| !groups.is_empty());
    let pairs = body["allowed_address_pairs"].as_array().is_some_and(|pairs| !pairs.is_empty());
    if !secure {
        if pairs {
            return Err(refused(
                Kind::Conflict,
                "AddressPairAndPortSecurityRequired",
                "Port Security must be enabled in order to have allowed address pairs on a port.",
            )
            .into());
        }
        if has && named {
            return Err(refused(
                Kind::BadRequest,
                "PortSecurityAndIPRequiredForSecurityGroups",
                "Port security must be enabled and port must have an IP address in order to use \
                 security groups.",
            )
            .into());
        }
        if has {
            return Err(refused(
                Kind::Conflict,
                "PortSecurityPortHasSecurityGroup",
                "Port has security group associated. Cannot disable port security or IP address until \
                 security group is removed.",
            )
            .into());
        }
        body.insert("security_groups".into(), json!([]));
        return Ok(());
    }
    if named {
        for id in body["security_groups"].as_array().into_iter().flatten() {
            let text = id.as_str().unwrap_or_default();
            let id = parse_uuid_like::<SecurityGroupId>(text);
            let id = id.ok_or_else(|| not_found("security_group", text))?;
            groups::usable(tx, caller, project, id)?;
        }
    } else {
        let default = groups::default_of(tx, project, now)?;
        body.insert("security_groups".into(), json!([default]));
    }
    Ok(())
}
