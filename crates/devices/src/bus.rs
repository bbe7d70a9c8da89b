//! The PCI bus as one scan found it: all functions, and which virtual function belongs to which
//! physical one.
//!
//! A function that cannot be read is left out and reported; one that disappears during the scan
//! counts as absent. Neither affects the others.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use crate::collector::DeviceProblem;
use crate::{Error, PciAddress, PciFunction, Sysfs};

const FUNCTIONS: &str = "bus/pci/devices";
const NODES: &str = "devices/system/node";

/// A PCI function on the bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OnBus {
    pub address: String,
    pub place: PciAddress,
    pub function: PciFunction,
    /// For a virtual function: its physical function.
    pub physical: Option<PciAddress>,
}

impl OnBus {
    /// The card that it belongs to: its physical function, or itself.
    pub fn card(&self) -> PciAddress {
        self.physical.unwrap_or(self.place)
    }

    pub fn is(&self, vendor_id: &str, products: &[&str]) -> bool {
        self.function.vendor_id == vendor_id
            && products.contains(&self.function.product_id.as_str())
    }
}

/// All functions of a host, by address.
#[derive(Debug, Default)]
pub(crate) struct Bus(BTreeMap<PciAddress, OnBus>);

impl Bus {
    pub fn read(sysfs: &dyn Sysfs, problems: &mut Vec<DeviceProblem>) -> Result<Self, Error> {
        let names = match sysfs.list(FUNCTIONS) {
            Ok(names) => names,
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(Error::Read { path: FUNCTIONS.to_owned(), source }),
        };
        let only = only_node(sysfs);
        let mut functions = BTreeMap::new();
        for address in names {
            let Some(place) = PciAddress::parse(&address) else { continue };
            match PciFunction::read(sysfs, &address) {
                Ok(Some(mut function)) => {
                    if function.numa_node < 0 {
                        function.numa_node = only.unwrap_or(function.numa_node);
                    }
                    let physical = physical(sysfs, &address);
                    functions.insert(place, OnBus { address, place, function, physical });
                }
                Ok(None) => {}
                Err(error) => problems.push(DeviceProblem::fatal(&address, &error)),
            }
        }
        Ok(Self(functions))
    }

    pub fn all(&self) -> impl Iterator<Item = &OnBus> {
        self.0.values()
    }

    pub fn get(&self, place: PciAddress) -> Option<&OnBus> {
        self.0.get(&place)
    }

    pub fn get_by(&self, address: &str) -> Option<&OnBus> {
        self.get(PciAddress::parse(address)?)
    }

    /// The virtual functions of a card.
    pub fn virtuals(&self, card: PciAddress) -> impl Iterator<Item = &OnBus> {
        self.all().filter(move |one| one.physical == Some(card))
    }
}

/// The NUMA node of a host that has only one. The kernel may report -1 for functions of such a host, although all of
/// them are on this node.
fn only_node(sysfs: &dyn Sysfs) -> Option<i64> {
    let names = sysfs.list(NODES).ok()?;
    let mut nodes = names.iter().filter_map(|name| name.strip_prefix("node")?.parse().ok());
    nodes.next().filter(|_| nodes.next().is_none())
}

fn physical(sysfs: &dyn Sysfs, address: &str) -> Option<PciAddress> {
    let path = sysfs.real(&format!("{FUNCTIONS}/{address}/physfn")).ok()?;
    PciAddress::parse(path.rsplit('/').next()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Fixture;

    #[test]
    fn functions_of_a_host_with_one_node_are_on_it() {
        let fixture = Fixture::new();
        fixture.function("0000:00:06.0", ("10de", "2335", "030200"), -1, "nvidia");
        fixture.function("0000:00:07.0", ("10de", "2335", "030200"), 3, "nvidia");
        let nodes = || -> Vec<i64> {
            let bus = Bus::read(&fixture.sysfs(), &mut Vec::new()).expect("the bus is read");
            bus.all().map(|one| one.function.numa_node).collect()
        };
        assert_eq!(nodes(), [-1, 3], "the kernel reports no nodes");
        fixture.write("devices/system/node/online", "0\n");
        fixture.write("devices/system/node/node0/cpulist", "0-15\n");
        assert_eq!(nodes(), [0, 3]);
        fixture.write("devices/system/node/node1/cpulist", "16-31\n");
        assert_eq!(nodes(), [-1, 3]);
    }
}
