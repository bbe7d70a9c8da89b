//! Random boots and deletions on small hosts, against a full search.

use std::collections::BTreeSet;

use kilonova_topology::{
    CpuPolicy, Cpus, Devices, EmulatorPolicy, Fitted, GuestCell, GuestTopology, HostCell,
    HostTopology, Limits, PageSize, Pages, Strategy as Order, ThreadPolicy, fit,
};
use proptest::prelude::*;

use crate::build::places;

const LIMITS: Limits = Limits { cpu_ratio: 2.0, memory_ratio: 1.5 };

/// A cell with up to 4 cores of 1 to 4 threads. Each CPU is dedicated, shared or neither.
fn cell(id: u32) -> impl proptest::strategy::Strategy<Value = HostCell> {
    let cores = prop::collection::vec(prop::collection::vec(0..8u8, 1..=4), 1..=4);
    (cores, 0..=16u64, 0..=8u64, 0..=2u64).prop_map(move |(cores, small, large, reserved)| {
        let mut cell = HostCell { id, socket: Some(id / 2), ..HostCell::default() };
        let mut next = 100 * id;
        for core in cores {
            let mut threads = Cpus::new();
            for kind in core {
                match kind {
                    0 => {}
                    1 | 2 => drop(cell.shared.insert(next)),
                    _ => drop(cell.dedicated.insert(next)),
                }
                if kind > 0 {
                    threads.insert(next);
                }
                next += 1;
            }
            if !threads.is_empty() {
                cell.siblings.push(threads);
            }
        }
        // Units of 2 MiB.
        let page = |size_kib, total, reserved| Pages { size_kib, total, reserved, used: 0 };
        if small > 0 {
            let reserved = reserved.min(large);
            cell.pages = vec![page(4, 512 * small, 0), page(2048, large, reserved)];
        }
        cell.memory_mb = 2 * (small + large);
        cell
    })
}

fn hosts() -> impl proptest::strategy::Strategy<Value = HostTopology> {
    (1..=3u32).prop_flat_map(|many| (0..many).map(cell).collect::<Vec<_>>()).prop_map(|cells| {
        let host = HostTopology { cells };
        host.check().expect("the host is consistent");
        host
    })
}

fn guests() -> impl proptest::strategy::Strategy<Value = GuestTopology> {
    let cells = prop::collection::vec((0..=5u32, 0..=5u32, 0..=6u64), 1..=3);
    let policies = (
        prop::option::of(prop::sample::select(vec![
            CpuPolicy::Dedicated,
            CpuPolicy::Mixed,
            CpuPolicy::Shared,
        ])),
        prop::option::of(prop::sample::select(vec![
            ThreadPolicy::Prefer,
            ThreadPolicy::Isolate,
            ThreadPolicy::Require,
        ])),
        prop::option::of(prop::sample::select(vec![
            EmulatorPolicy::Share,
            EmulatorPolicy::Isolate,
        ])),
    );
    let pages = prop::option::of(prop::sample::select(vec![
        PageSize::Small,
        PageSize::Large,
        PageSize::Any,
        PageSize::Bytes(2 << 20),
        PageSize::Bytes(1 << 30),
    ]));
    (cells, policies, pages).prop_map(|(sizes, (cpu_policy, threads, emulator), page_size)| {
        let mut next = 0;
        let mut take = |many: u32| -> Cpus {
            next += many;
            (next - many..next).collect()
        };
        let pinned = matches!(cpu_policy, Some(CpuPolicy::Dedicated | CpuPolicy::Mixed));
        let all = cpu_policy == Some(CpuPolicy::Dedicated);
        let cells = sizes.into_iter().map(|(shared, dedicated, memory)| GuestCell {
            shared: take(if all { 0 } else { shared }),
            dedicated: take(if pinned { dedicated } else { 0 }),
            memory_mb: 1 + memory,
        });
        GuestTopology {
            cells: cells.collect(),
            cpu_policy,
            thread_policy: threads.filter(|_| pinned),
            emulator_policy: emulator.filter(|_| pinned),
            page_size,
            realtime: Cpus::new(),
            locked_memory: false,
        }
    })
}

/// True if some choice of free CPUs satisfies the thread policy; tries every subset.
fn can_pin(host: &HostCell, vcpus: usize, emulator: usize, policy: Option<ThreadPolicy>) -> bool {
    let free: Vec<u32> = host.dedicated.difference(&host.pinned).copied().collect();
    if vcpus + emulator > free.len() {
        return false;
    }
    let core = |cpu: u32| host.siblings.iter().find(|core| core.contains(&cpu));
    let single = host.siblings.iter().all(|core| core.len() == 1);
    (0u32..1 << free.len()).filter(|mask| mask.count_ones() as usize == vcpus).any(|mask| {
        let taken: BTreeSet<u32> =
            (0..free.len()).filter(|bit| mask & (1 << bit) != 0).map(|bit| free[bit]).collect();
        let beside = |cpu: u32, of: &dyn Fn(u32) -> bool| {
            core(cpu).is_some_and(|core| core.iter().any(|other| *other != cpu && of(*other)))
        };
        match policy {
            Some(ThreadPolicy::Isolate) => single,
            Some(ThreadPolicy::Require) => {
                let alone = taken.iter().filter(|cpu| !beside(**cpu, &|o| taken.contains(&o)));
                !single
                    && alone.count() <= 1
                    && taken.iter().all(|cpu| beside(*cpu, &|o| free.contains(&o)))
            }
            Some(ThreadPolicy::Prefer) | None => true,
        }
    })
}

/// True if the guest cell fits on the host cell, by an independent statement of the rules.
fn can_fit(host: &HostCell, guest: &GuestTopology, place: usize) -> bool {
    let cell = &guest.cells[place];
    let pinned = guest.is_pinned();
    let shares = guest.cpu_policy != Some(CpuPolicy::Dedicated);
    let emulator = if place == 0 { guest.emulator_cpus() } else { 0 };
    let kib = cell.memory_mb * 1024;
    let smallest = host.pages.iter().map(|p| p.size_kib).min();
    let whole = |p: &&Pages| kib.is_multiple_of(p.size_kib);
    let free = |p: &Pages| (p.total - p.reserved).saturating_sub(p.used) * p.size_kib;
    let memory = match guest.page_size {
        Some(size) => host.pages.iter().filter(whole).any(|p| {
            let asked = match size {
                PageSize::Small => Some(p.size_kib) == smallest,
                PageSize::Large => Some(p.size_kib) != smallest,
                PageSize::Any => true,
                PageSize::Bytes(bytes) => p.size_kib * 1024 == bytes,
            };
            asked && kib <= free(p)
        }),
        None => match host.pages.iter().find(|p| Some(p.size_kib) == smallest) {
            Some(p) if pinned => kib <= free(p),
            Some(p) => kib <= p.total * p.size_kib,
            None if pinned => cell.memory_mb + host.memory_used_mb <= host.memory_mb,
            None => cell.memory_mb <= host.memory_mb,
        },
    };
    let cpus = !pinned || can_pin(host, cell.dedicated.len(), emulator, guest.thread_policy);
    let small =
        host.pages.iter().find(|p| Some(p.size_kib) == smallest && guest.page_size.is_none());
    let limits = !shares
        || (cell.shared.len() <= host.shared.len()
            && host.shared_used + cell.shared.len() as u64 <= 2 * host.shared.len() as u64
            && 2 * (host.memory_used_mb + cell.memory_mb) <= 3 * host.memory_mb
            && small.is_none_or(|p| 2 * (p.used * p.size_kib + kib) <= 3 * p.total * p.size_kib));
    memory && cpus && limits
}

/// Finds the first assignment of guest cells to distinct host cells by a full search, and leaves it
/// in `used`.
fn assignable(
    host: &HostTopology,
    guest: &GuestTopology,
    place: usize,
    used: &mut Vec<u32>,
) -> bool {
    place == guest.cells.len()
        || host.cells.iter().any(|cell| {
            if used.contains(&cell.id) || !can_fit(cell, guest, place) {
                return false;
            }
            used.push(cell.id);
            let found = assignable(host, guest, place + 1, used);
            if !found {
                used.pop();
            }
            found
        })
}

/// Checks a fit against its request.
fn check_fit(host: &HostTopology, guest: &GuestTopology, fitted: &Fitted) {
    let places: BTreeSet<u32> = fitted.cells.iter().map(|cell| cell.host).collect();
    assert_eq!(places.len(), guest.cells.len(), "each guest cell has a host cell of its own");
    for (place, (cell, asked)) in fitted.cells.iter().zip(&guest.cells).enumerate() {
        let on = host.cell(cell.host).expect("the host has the cell");
        assert_eq!(cell.pins.keys().copied().collect::<Cpus>(), asked.dedicated);
        assert_eq!((&cell.shared, cell.memory_mb), (&asked.shared, asked.memory_mb));
        assert_eq!(cell.emulator.len(), if place == 0 { guest.emulator_cpus() } else { 0 });
        let taken: Cpus = cell.host_cpus().collect();
        assert_eq!(taken.len(), cell.pins.len() + cell.emulator.len(), "no CPU serves two vCPUs");
        assert!(taken.is_subset(&on.free_dedicated()));
        if guest.thread_policy == Some(ThreadPolicy::Require) {
            let pins: Cpus = cell.pins.values().copied().collect();
            let alone = pins.iter().filter(|cpu| {
                let core = on.siblings.iter().find(|core| core.contains(cpu)).expect("a core");
                core.intersection(&pins).count() == 1
            });
            assert!(alone.count() <= 1);
        }
    }
}

/// Checks the combined use of the guests on a host.
fn check_host(host: &HostTopology, empty: &HostTopology, guests: &[Fitted]) {
    let mut owned = Cpus::new();
    for cell in guests.iter().flat_map(|guest| &guest.cells) {
        for cpu in cell.host_cpus() {
            assert!(owned.insert(cpu), "CPU {cpu} belongs to two guests");
        }
    }
    let mut counted = empty.clone();
    guests.iter().for_each(|guest| counted.count(guest));
    assert_eq!(&counted, host, "the use of a host is the sum of its guests");
    for cell in &host.cells {
        assert!(cell.pinned.is_subset(&cell.dedicated));
        assert!(cell.shared_used <= 2 * cell.shared.len() as u64);
        let smallest = cell.pages.iter().map(|pages| pages.size_kib).min();
        for pages in &cell.pages {
            let most = pages.total - pages.reserved;
            if Some(pages.size_kib) == smallest {
                assert!(2 * pages.used <= 3 * most, "{pages:?}");
            } else {
                assert!(pages.used <= most, "{pages:?}");
            }
        }
        if cell.pages.is_empty() {
            assert!(2 * cell.memory_used_mb <= 3 * cell.memory_mb);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn boots_and_deletions_never_overlap_and_miss_no_fit(
        empty in hosts(),
        steps in prop::collection::vec((guests(), 0..4u8, any::<prop::sample::Index>()), 1..16),
        pack in any::<bool>(),
    ) {
        let strategy = if pack { Order::Pack } else { Order::Spread };
        let mut host = empty.clone();
        let mut guests: Vec<Fitted> = Vec::new();
        for (guest, action, which) in steps {
            if action == 0 && !guests.is_empty() {
                let gone = guests.swap_remove(which.index(guests.len()));
                host.release(&gone).expect("the fit is in use");
            }
            let fitted = fit(&host, &guest, Some(LIMITS), strategy, &Devices::default());
            let again = fit(&host, &guest, Some(LIMITS), strategy, &Devices::default());
            prop_assert_eq!(&fitted, &again, "the same input gives the same fit");
            let mut first = Vec::new();
            let possible = assignable(&host, &guest, 0, &mut first);
            prop_assert_eq!(fitted.is_ok(), possible, "{:?} on {:?}: {:?}", guest, host, fitted);
            if let Ok(fitted) = fitted {
                check_fit(&host, &guest, &fitted);
                if guest.cells.len() == host.cells.len() {
                    prop_assert_eq!(places(&fitted), first, "the first in the host's order");
                }
                host.claim(&fitted).expect("nothing overlaps");
                guests.push(fitted);
            }
            check_host(&host, &empty, &guests);
        }
    }
}
