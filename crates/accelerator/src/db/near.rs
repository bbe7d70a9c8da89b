//! Where devices are: the columns `numa_node`, `pcie_switch` and `island` of `devices`.

use kilonova_ids::{HostName, ProviderId};
use kilonova_store::{Error, Row, Tx, Value, params, statements};

/// Where the device of a provider is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DevicePlace {
    /// The provider.
    pub provider: ProviderId,
    /// Its host.
    pub host: HostName,
    /// The address of its card.
    pub card: String,
    /// The NUMA node; `None` if the kernel reports none.
    pub node: Option<i64>,
    /// The PCIe switch above it.
    pub switch: Option<String>,
    /// Its island.
    pub island: Option<String>,
}

statements! {
    /// Where the devices of providers are.
    OF_PROVIDERS = "SELECT p.provider_id, d.host, d.card, d.numa_node, d.pcie_switch, d.island
        FROM deployables p JOIN devices d ON d.id = p.device_id WHERE p.provider_id IN ({})";
    /// The number of cards of an island.
    ISLAND_SIZE = "SELECT COUNT(DISTINCT card) AS cards FROM devices
        WHERE host = ?1 AND island = ?2 AND present = 1";
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
            host: row.host("host")?,
            card: row.string("card")?,
            node: Some(row.int("numa_node")?).filter(|node| *node >= 0),
            switch: row.string_opt("pcie_switch")?,
            island: row.string_opt("island")?,
        })
    };
    tx.answers(asked)?.iter().map(read).collect()
}

pub(crate) fn island_size(tx: &mut Tx<'_>, host: &HostName, island: &str) -> Result<usize, Error> {
    let row = tx.row(ISLAND_SIZE, params![host, island])?;
    let cards = row.map(|row| row.int("cards")).transpose()?.unwrap_or(0);
    Ok(usize::try_from(cards).unwrap_or(0))
}
