//! Chooses the host CPUs of dedicated vCPUs.

use std::collections::BTreeMap;

use crate::{Cpus, HostCell, ThreadPolicy};

/// The host CPU of each vCPU, and those for the emulator's threads.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Packed {
    pub(super) pins: BTreeMap<u32, u32>,
    pub(super) emulator: Cpus,
}

/// Packs vCPUs onto the free cores of a host cell: on as many threads of each core as possible, and
/// if possible on the same number of threads of each. `None` if there are too few free threads that
/// the thread policy allows.
pub(super) fn pack(
    host: &HostCell,
    vcpus: &Cpus,
    policy: Option<ThreadPolicy>,
    emulator: usize,
) -> Option<Packed> {
    let cores = host.free_cores();
    let threads = host.threads_per_core();
    let chosen = match policy {
        // The sibling threads of an isolated vCPU would have to stay unused, and Placement counts only the CPUs in use.
        // Thus the policy needs cores with one thread, as in Nova since 20.0 (its bug 1889633).
        Some(ThreadPolicy::Isolate) if threads > 1 => None,
        Some(ThreadPolicy::Require) if threads < 2 => None,
        Some(ThreadPolicy::Require) => {
            evenly(&cores, vcpus.len(), 2).or_else(|| in_pairs(&cores, vcpus.len()))
        }
        Some(ThreadPolicy::Prefer | ThreadPolicy::Isolate) | None => {
            evenly(&cores, vcpus.len(), 1).or_else(|| linearly(&cores, vcpus.len()))
        }
    }?;
    let rest = cores.iter().flatten().filter(|cpu| !chosen.contains(cpu)).copied();
    let rest: Cpus = rest.take(emulator).collect();
    let pins = vcpus.iter().copied().zip(chosen).collect();
    (rest.len() == emulator).then_some(Packed { pins, emulator: rest })
}

/// The first `n` threads of each core with at least `n` free ones, for the largest `n` ≥ `least`
/// that yields enough CPUs.
fn evenly(cores: &[Vec<u32>], wanted: usize, least: usize) -> Option<Vec<u32>> {
    let most = cores.iter().map(Vec::len).max().unwrap_or(0);
    (least..=most).rev().find_map(|threads| {
        let usable = cores.iter().filter(|core| core.len() >= threads);
        let cpus: Vec<u32> =
            usable.flat_map(|core| &core[..threads]).copied().take(wanted).collect();
        (cpus.len() == wanted).then_some(cpus)
    })
}

/// Takes all free threads of cores with at least two, even if the cores differ in size. At most one
/// vCPU is alone on its core. Nova finds no fit in this case.
fn in_pairs(cores: &[Vec<u32>], wanted: usize) -> Option<Vec<u32>> {
    let usable = cores.iter().filter(|core| core.len() >= 2);
    let cpus: Vec<u32> = usable.flatten().copied().take(wanted).collect();
    (cpus.len() == wanted).then_some(cpus)
}

/// Takes free threads of any core, in order.
fn linearly(cores: &[Vec<u32>], wanted: usize) -> Option<Vec<u32>> {
    let cpus: Vec<u32> = cores.iter().flatten().copied().take(wanted).collect();
    (cpus.len() == wanted).then_some(cpus)
}
