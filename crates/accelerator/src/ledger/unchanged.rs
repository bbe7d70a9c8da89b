//! Detects an unchanged report without reading all rows of the host.
//!
//! After a report the host's row stores a fingerprint of the report and of a summary of the rows:
//! count, newest id, last change. An equal report over rows with an equal summary requires no work.
//! Owners are not part of the summary. If a later report would require work (an absent device with
//! owned handles, an unhealthy device, a mixed card, a bitstream that an order loads or has loaded,
//! a dirty handle, a closed island), there is no summary and no fingerprint.

use kilonova_ids::HostName;
use kilonova_node_api::{Device, Health};
use kilonova_placement::ledger::ProviderSpec;
use kilonova_store::Tx;
use uuid::Uuid;

use super::plan::DevicePlan;
use crate::Error;
use crate::db::devices as rows;

fn is_healthy(devices: &[Device]) -> bool {
    devices.iter().all(|device| device.health == Health::Healthy)
}

/// Announces the reads of [`if_unchanged`] and [`record`].
pub(super) fn expect(tx: &mut Tx<'_>, host: &HostName, devices: &[Device]) -> Result<(), Error> {
    if is_healthy(devices) { Ok(rows::expect_fingerprint(tx, host)?) } else { Ok(()) }
}

/// The fingerprint of this report over the current rows; `None` if a later report has work to do.
fn fingerprint(
    tx: &mut Tx<'_>,
    host: &HostName,
    devices: &[Device],
) -> Result<Option<String>, Error> {
    if !is_healthy(devices) {
        return Ok(None);
    }
    let Some(summary) = rows::summary(tx, host)? else { return Ok(None) };
    let text = format!("{summary:?}{devices:?}");
    Ok(Some(Uuid::new_v3(&Uuid::NAMESPACE_OID, text.as_bytes()).to_string()))
}

/// The children of the host's provider, if the report is unchanged.
pub(super) fn if_unchanged(
    tx: &mut Tx<'_>,
    host: &HostName,
    devices: &[Device],
    plans: &[DevicePlan<'_>],
) -> Result<Option<Vec<ProviderSpec>>, Error> {
    expect(tx, host, devices)?;
    let Some(stored) = rows::fingerprint(tx, host)? else { return Ok(None) };
    if fingerprint(tx, host, devices)?.as_ref() != Some(&stored) {
        return Ok(None);
    }
    let deployables = plans.iter().flat_map(|plan| &plan.deployables);
    Ok(Some(deployables.map(|plan| plan.provider(0)).collect()))
}

/// Stores the fingerprint of the report.
pub(super) fn record(tx: &mut Tx<'_>, host: &HostName, devices: &[Device]) -> Result<(), Error> {
    if let Some(fingerprint) = fingerprint(tx, host, devices)?
        && rows::fingerprint(tx, host)?.as_ref() != Some(&fingerprint)
    {
        rows::set_fingerprint(tx, host, &fingerprint)?;
    }
    Ok(())
}
