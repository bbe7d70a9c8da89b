//! The cells of a guest: of equal size, or as the flavor or the image describes them.

use super::{Asked, MOST_CELLS, Refusal};
use crate::{Cpus, GuestCell};

impl<'a> Asked<'a> {
    /// The number of cells, if one is requested.
    pub(super) fn nodes(&self) -> Result<Option<i64>, Refusal> {
        let (flavor, image) = self.both("numa_nodes");
        if flavor.is_some() && image.is_some() {
            return Err(overrides("hw_numa_nodes"));
        }
        let Some(asked) = flavor.or(image) else { return Ok(None) };
        match asked.trim().parse::<i64>() {
            Ok(nodes) if nodes >= 1 => Ok(Some(nodes)),
            _ => Err(Refusal::InvalidNumaNodesNumber { nodes: asked.to_owned() }),
        }
    }

    /// The cells; `dedicated` has the dedicated vCPUs of all cells.
    pub(super) fn cells(&self, nodes: i64, dedicated: &Cpus) -> Result<Vec<GuestCell>, Refusal> {
        let (cpus, memory) = (self.of_nodes("numa_cpus")?, self.of_nodes("numa_mem")?);
        let parts = match (cpus, memory) {
            (None, None) => self.evenly(nodes)?,
            (Some(cpus), Some(memory)) => {
                let fits = |list: usize| i64::try_from(list).is_ok_and(|list| list == nodes);
                if !fits(cpus.len()) || !fits(memory.len()) {
                    return Err(Refusal::ImageNumaTopologyIncomplete);
                }
                self.by_hand(&cpus, &memory)?
            }
            _ => return Err(Refusal::ImageNumaTopologyIncomplete),
        };
        let cells = parts.into_iter().map(|(cpus, memory_mb)| GuestCell {
            shared: cpus.difference(dedicated).copied().collect(),
            dedicated: cpus.intersection(dedicated).copied().collect(),
            memory_mb,
        });
        Ok(cells.collect())
    }

    /// The values of a list such as `hw:numa_cpus.0`, `hw:numa_cpus.1`, … up to the first missing
    /// one, from the flavor or the image.
    fn of_nodes(&self, name: &str) -> Result<Option<Vec<&'a str>>, Refusal> {
        let flavor = (0..MOST_CELLS).map_while(|node| self.spec(&format!("hw:{name}.{node}")));
        let image = (0..MOST_CELLS).map_while(|node| self.property(&format!("hw_{name}.{node}")));
        let (flavor, image): (Vec<_>, Vec<_>) = (flavor.collect(), image.collect());
        match (flavor.is_empty(), image.is_empty()) {
            (true, true) => Ok(None),
            (false, false) => Err(overrides(&format!("hw_{name}"))),
            (false, true) => Ok(Some(flavor)),
            (true, false) => Ok(Some(image)),
        }
    }

    fn evenly(&self, nodes: i64) -> Result<Vec<(Cpus, u64)>, Refusal> {
        let vcpus = i64::from(self.counted_vcpus()?);
        if vcpus % nodes != 0 || self.memory_mb % nodes != 0 {
            return Err(Refusal::ImageNumaTopologyAsymmetric);
        }
        // Every cell needs a vCPU, so there must not be more cells than vCPUs.
        let (each, memory) = (vcpus / nodes, self.memory_mb / nodes);
        if each == 0 {
            return Err(Refusal::ImageNumaTopologyAsymmetric);
        }
        let cells = (0..nodes).map(|node| {
            let cpus = node * each..(node + 1) * each;
            (cpus.filter_map(|cpu| u32::try_from(cpu).ok()).collect(), memory.unsigned_abs())
        });
        Ok(cells.collect())
    }

    fn by_hand(&self, cpus: &[&str], memory: &[&str]) -> Result<Vec<(Cpus, u64)>, Refusal> {
        let mut free: Cpus = (0..self.counted_vcpus()?).collect();
        let mut lists = Vec::new();
        for list in cpus {
            let named = self.list(list)?;
            if let Some(cpu) = named.inside.iter().find(|cpu| !free.remove(*cpu)) {
                return Err(Refusal::ImageNumaTopologyCpuDuplicates { cpunum: *cpu });
            }
            if let Some(cpunum) = named.outside {
                let cpumax = self.vcpus - 1;
                return Err(Refusal::ImageNumaTopologyCpuOutOfRange { cpunum, cpumax });
            }
            lists.push(named.inside);
        }
        if !free.is_empty() {
            let cpus = free.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            return Err(Refusal::ImageNumaTopologyCpusUnassigned { cpus });
        }
        let amounts = memory.iter().map(|text| match text.trim().parse::<u64>() {
            Ok(amount) if amount > 0 => Ok(amount),
            _ => Err(Refusal::InvalidNodeMemory { memory: (*text).to_owned() }),
        });
        let amounts = amounts.collect::<Result<Vec<u64>, _>>()?;
        let memsize = amounts.iter().copied().fold(0, u64::saturating_add);
        if i64::try_from(memsize) != Ok(self.memory_mb) {
            let memtotal = self.memory_mb;
            return Err(Refusal::ImageNumaTopologyMemoryOutOfRange { memsize, memtotal });
        }
        Ok(lists.into_iter().zip(amounts).collect())
    }
}

fn overrides(name: &str) -> Refusal {
    Refusal::ImageNumaTopologyForbidden { name: name.to_owned() }
}
