//! The cost of a host's state, and the scores derived from it.

use crate::demand::Profile;
use crate::islands::SPLIT_COST;
use crate::state::{Host, Shape, WHOLE};

/// Rates a place for a request; the highest score wins.
pub trait Scorer {
    /// The score of a state, given the state after the request.
    fn score(&self, before: &Host, after: &Host, shape: &Shape) -> f64;

    /// The penalty for a place on a card that requests of other kinds could use entirely, if cards serve several kinds
    /// of requests.
    fn kept_for_others(&self) -> f64 {
        0.0
    }
}

/// The number of free devices that typical requests cannot use, weighted by requests and by
/// requested devices. The first number is the fragmentation of FGD (Weng et al., USENIX ATC 2023).
#[must_use]
pub fn fragment(host: &Host, profile: &Profile) -> (f64, f64) {
    let total = host.total();
    let (mut by_request, mut by_device) = (0.0, 0.0);
    for typical in &profile.typical {
        let shape = &typical.shape;
        let lost = if shape.is_accelerated() && host.could_hold(shape) {
            let small = host.free().iter().rev().take_while(|free| **free < shape.share);
            small.map(|free| u32::from(*free)).sum()
        } else {
            total
        };
        by_request += typical.weight * f64::from(lost);
        by_device += typical.device_weight * f64::from(lost);
    }
    (by_request / f64::from(WHOLE), by_device / f64::from(WHOLE))
}

/// The weights of the terms of a host's cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weights {
    /// Free devices that typical requests cannot use, weighted by requests.
    pub fragment: f64,
    /// The same, weighted by requested devices.
    pub device_fragment: f64,
    /// Free devices for which the host has too little free CPU.
    pub starved: f64,
    /// Devices that are partly used.
    pub partly_used: f64,
    /// Scarcity of the model, for each free device.
    pub scarcity: f64,
    /// Free devices of a host that is not idle, times the fraction of the demand that is for shares
    /// of devices.
    pub broken: f64,
    /// Free devices outside whole islands, on hosts with islands.
    pub islands: f64,
    /// Free devices before the request: a fuller host is preferred.
    pub emptiness: f64,
}

impl Weights {
    /// Places the most requests while a cloud fills and no server is deleted.
    pub const FRAGMENTATION: Self = Self {
        fragment: 1.0,
        device_fragment: 0.5,
        starved: 1.5,
        partly_used: 0.03,
        scarcity: 1.0,
        broken: 0.0,
        islands: 0.5,
        emptiness: 0.03,
    };

    /// Assigns the most devices, both while a cloud fills and while servers come and go; the
    /// default. It keeps whole hosts for requests that need them.
    pub const BALANCED: Self = Self {
        fragment: 1.0,
        device_fragment: 5.0,
        starved: 1.5,
        partly_used: 0.03,
        scarcity: 1.0,
        broken: 0.05,
        islands: 0.5,
        emptiness: 0.1,
    };

    /// Prefers the emptiest host.
    pub const SPREAD: Self = Self {
        fragment: 0.0,
        device_fragment: 0.0,
        starved: 0.0,
        partly_used: 0.0,
        scarcity: 0.0,
        broken: 0.0,
        islands: 0.0,
        emptiness: -1.0,
    };
}

/// Thousandths of a CPU that weigh as much as a device when hosts without devices are compared.
const CPU_OF_DEVICE: f64 = 1_000_000.0;

/// The preference for a card that requests of other kinds can no longer use over an empty card. It equals the
/// preference for a host with this many fewer free devices, so the card matters more than its host.
const OTHERS: f64 = 10.0;

impl Default for Weights {
    fn default() -> Self {
        Self::BALANCED
    }
}

/// The cost of a host under a demand.
#[derive(Debug, Clone)]
pub struct Cost {
    /// The demand.
    pub profile: Profile,
    /// The weights.
    pub weights: Weights,
}

impl Cost {
    /// The cost of a state, in devices.
    #[must_use]
    pub fn of(&self, host: &Host) -> f64 {
        let weights = &self.weights;
        let free = f64::from(host.total()) / f64::from(WHOLE);
        let (fragment, device_fragment) = fragment(host, &self.profile);
        let feed = self.profile.cpu_per_device;
        let starved =
            if feed > 0.0 { (feed * free - f64::from(host.cpu)).max(0.0) / feed } else { 0.0 };
        let partly = host.free().iter().filter(|free| **free > 0 && **free < WHOLE).count();
        let broken = if host.is_idle() { 0.0 } else { free * self.profile.shared };
        weights.fragment * fragment
            + weights.device_fragment * device_fragment
            + weights.starved * starved
            + weights.partly_used * partly as f64
            + weights.broken * broken
            + weights.islands * f64::from(host.outside_whole_islands()) / f64::from(WHOLE)
            - weights.scarcity * self.profile.scarcity(host) * free
    }
}

impl Scorer for Cost {
    /// Hosts without devices have no cost; the one with the most free CPU wins. Under every set of weights, a request
    /// without devices prefers hosts with few free devices. A request for several devices prefers a host on which one
    /// island has room for all of them, if the host has islands.
    fn score(&self, before: &Host, after: &Host, shape: &Shape) -> f64 {
        if before.devices() == 0 {
            return f64::from(before.cpu) / CPU_OF_DEVICE;
        }
        let free = f64::from(before.total()) / f64::from(WHOLE);
        let emptiness = self.weights.emptiness;
        let emptiness = if shape.is_accelerated() { emptiness } else { emptiness.abs() };
        let split =
            if before.splits(shape) { f64::from(SPLIT_COST) * shape.devices() } else { 0.0 };
        self.of(before) - self.of(after) - emptiness * free - self.weights.islands * split
    }

    fn kept_for_others(&self) -> f64 {
        self.weights.emptiness * OTHERS
    }
}
