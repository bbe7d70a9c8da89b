//! Requests arrive at random times and depart after random lifetimes, until the cloud is in a
//! steady state.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use kilonova_packing::{Host, Shape, Weights};

use super::policy::Policy;
use super::random::Random;
use super::replay::Cloud;
use super::trace::Trace;

/// The devices requested at any time, as a fraction of all devices.
const LOAD: f64 = 1.1;
/// The start of the measurement, in mean lifetimes.
const WARM: f64 = 4.0;
/// The end of the measurement, in mean lifetimes.
const END: f64 = 10.0;

/// The result of a run.
pub struct Outcome {
    /// The mean fraction of allocated devices over time, in percent.
    pub allocated: f64,
    /// The fraction of accepted requests, in percent.
    pub accepted: f64,
    /// The number of requests.
    pub decisions: usize,
}

/// A running request.
struct Running {
    shape: Shape,
    host: usize,
    devices: Vec<usize>,
}

/// Runs a workload on one in every `part` hosts. Lifetimes are lognormal with mean 1.
pub fn run(
    trace: &Trace,
    requests: &[Shape],
    policy: Policy,
    weights: Weights,
    seed: u64,
    part: usize,
) -> Outcome {
    let mut random = Random::new(seed);
    let mut hosts: Vec<&Host> = trace.hosts().iter().collect();
    random.shuffle(&mut hosts);
    hosts.truncate(hosts.len() / part);
    let capacity: f64 = hosts.iter().map(|host| f64::from(host.devices())).sum();
    let supply = trace.supply(hosts.iter().copied());
    let scorer = policy.scorer(&super::profile(requests, &supply), weights);
    let mut cloud = Cloud::new(hosts.into_iter().cloned(), policy, scorer);
    let mean: f64 = requests.iter().map(Shape::devices).sum::<f64>() / requests.len().max(1) as f64;
    let rate = LOAD * capacity / mean.max(f64::MIN_POSITIVE);

    let mut running: Vec<Option<Running>> = Vec::new();
    let mut ends: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let mut usage = Usage::default();
    let (mut now, mut decisions) = (0.0, 0);
    let (mut requested, mut accepted) = (0_u32, 0_u32);
    while !requests.is_empty() {
        now += random.exponential() / rate;
        if now > END {
            break;
        }
        while let Some(Reverse((at, number))) = ends.peek().copied() {
            // Positive floating-point numbers sort like their bits.
            let at = f64::from_bits(at);
            if at > now {
                break;
            }
            ends.pop();
            if let Some(ended) = running[number].take() {
                cloud.end(&ended.shape, ended.host, &ended.devices);
                usage.change(at, -ended.shape.devices());
            }
        }
        let shape = requests[random.below(requests.len())];
        let life = (random.normal() - 0.5).exp();
        decisions += 1;
        let counts = now > WARM;
        requested += u32::from(counts);
        if let Some((host, devices)) = cloud.place(&shape) {
            accepted += u32::from(counts);
            usage.change(now, shape.devices());
            ends.push(Reverse(((now + life).to_bits(), running.len())));
            running.push(Some(Running { shape, host, devices }));
        }
    }
    usage.change(END, 0.0);
    Outcome {
        allocated: usage.area / (END - WARM) / capacity.max(1.0) * 100.0,
        accepted: f64::from(accepted) / f64::from(requested.max(1)) * 100.0,
        decisions,
    }
}

/// The allocated devices over time, after the warm-up.
#[derive(Default)]
struct Usage {
    now: f64,
    since: f64,
    area: f64,
}

impl Usage {
    fn change(&mut self, at: f64, devices: f64) {
        self.area += self.now * (at - self.since.max(WARM)).max(0.0);
        self.since = at;
        self.now += devices;
    }
}
