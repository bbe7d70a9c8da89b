//! Where devices are: the columns `numa_node`, `pcie_switch` and `island` of `devices`.

use kilonova_ids::{ProviderId, ResourceClass};
use kilonova_store::{Error, Row, Tx, Value, params, statements};

/// Where the device of a provider is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DevicePlace {
    /// The provider.
    pub provider: ProviderId,
    /// The NUMA node; `None` if the kernel reports none.
    pub node: Option<i64>,
    /// The PCIe switch above it.
    pub switch: Option<String>,
    /// Its island.
    pub island: Option<String>,
}

statements! {
    /// Where the devices of providers are.
    OF_PROVIDERS = "SELECT p.provider_id, d.numa_node, d.pcie_switch, d.island
        FROM deployables p JOIN devices d ON d.id = p.device_id WHERE p.provider_id IN ({})";
    /// The providers with handles in the island of a provider's device.
    IN_ISLAND_OF = "SELECT p.provider_id, p.resource_class FROM deployables one
        JOIN devices its ON its.id = one.device_id
        JOIN devices d ON d.host = its.host AND d.island = its.island AND d.present = 1
        JOIN deployables p ON p.device_id = d.id AND p.present = 1
        WHERE one.provider_id = ?1 AND EXISTS (SELECT 1 FROM attach_handles h
            WHERE h.deployable_id = p.id AND h.present = 1)";
}

pub(crate) fn of_providers(
    tx: &mut Tx<'_>,
    providers: &[ProviderId],
) -> Result<Vec<DevicePlace>, Error> {
    let providers: Vec<Value> = providers.iter().map(|provider| Value::from(*provider)).collect();
    let asked = tx.ask_list(OF_PROVIDERS, &providers)?;
    let read = |row: &Row| {
        Ok(DevicePlace {
            provider: row.id("provider_id")?,
            node: Some(row.int("numa_node")?).filter(|node| *node >= 0),
            switch: row.string_opt("pcie_switch")?,
            island: row.string_opt("island")?,
        })
    };
    tx.answers(asked)?.iter().map(read).collect()
}

/// Announces [`in_island_of`].
pub(crate) fn expect_in_island_of(tx: &mut Tx<'_>, provider: ProviderId) -> Result<(), Error> {
    tx.expect(IN_ISLAND_OF, params![provider])
}

pub(crate) fn in_island_of(
    tx: &mut Tx<'_>,
    provider: ProviderId,
) -> Result<Vec<(ProviderId, ResourceClass)>, Error> {
    let rows = tx.rows(IN_ISLAND_OF, params![provider])?;
    rows.iter().map(|row| Ok((row.id("provider_id")?, row.class("resource_class")?))).collect()
}
