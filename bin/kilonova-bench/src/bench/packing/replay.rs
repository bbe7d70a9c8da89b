//! The replay: requests arrive in random order; those that fit nowhere are dropped, and no request
//! departs.

use kilonova_packing::{Fleet, Host, Place, Shape, WHOLE};

use super::policy::{Policy, Rating};
use super::random::Random;
use super::trace::Trace;

/// The requested devices, as a fraction of all devices.
const REQUESTED: f64 = 1.3;

/// The result of a replay.
pub struct Outcome {
    /// The percentage of allocated devices when the requests so far equalled the number of devices.
    pub at_capacity: f64,
    /// The same at the end.
    pub at_end: f64,
    /// The number of requests.
    pub decisions: usize,
}

/// The hosts of a replay, each with its devices in their original order.
pub struct Cloud<S> {
    fleet: Fleet<S>,
    devices: Vec<Vec<u16>>,
    policy: Policy,
}

impl<S: kilonova_packing::Scorer> Cloud<S> {
    /// A cloud of idle hosts. Of equally good hosts, the first wins.
    pub fn new(hosts: impl Iterator<Item = Host>, policy: Policy, scorer: S) -> Self {
        let mut cloud = Self { fleet: Fleet::new(scorer), devices: Vec::new(), policy };
        for (number, host) in hosts.enumerate() {
            cloud.devices.push(host.free().to_vec());
            cloud.fleet.set(number as u32, host);
        }
        cloud
    }

    /// Places a request. Returns its host and devices.
    pub fn place(&mut self, shape: &Shape) -> Option<(usize, Vec<usize>)> {
        let place = self.fleet.choose(shape)?;
        let host = place.host as usize;
        let remainder = match (self.policy, place.remainder) {
            (Policy::Fgd, Some(_)) => self.first_best(place.host, shape)?,
            (_, remainder) => remainder.unwrap_or(WHOLE),
        };
        let mut devices = Vec::with_capacity(usize::from(shape.count));
        for _ in 0..shape.count {
            let at = self.devices[host].iter().position(|free| *free == remainder)?;
            self.devices[host][at] -= shape.share;
            devices.push(at);
        }
        let remainder = place.remainder.map(|_| remainder);
        let claimed = self.fleet.claim(shape, Place { remainder, ..place });
        debug_assert!(claimed, "a chosen place has room");
        Some((host, devices))
    }

    /// FGD takes the first device with the best score, in the order of the host's devices.
    fn first_best(&self, host: u32, shape: &Shape) -> Option<u16> {
        let state = self.fleet.host(host)?;
        let mut best: Option<(f64, u16)> = None;
        for free in &self.devices[host as usize] {
            let Some(after) = state.after(shape, Some(*free)) else { continue };
            let score = self.fleet.scorer().score(state, &after, shape);
            if best.is_none_or(|(most, _)| score > most) {
                best = Some((score, *free));
            }
        }
        best.map(|(_, free)| free)
    }

    /// Ends a request.
    pub fn end(&mut self, shape: &Shape, host: usize, devices: &[usize]) {
        let remainders: Vec<u16> = devices.iter().map(|at| self.devices[host][*at]).collect();
        let state = self.fleet.host(host as u32);
        if let Some(after) = state.and_then(|state| state.without(shape, &remainders)) {
            self.fleet.set(host as u32, after);
            devices.iter().for_each(|at| self.devices[host][*at] += shape.share);
        }
    }
}

/// Replays a workload.
pub fn run(
    trace: &Trace,
    requests: &[Shape],
    policy: Policy,
    scorer: &Rating,
    seed: u64,
) -> Outcome {
    let mut random = Random::new(seed);
    let capacity: f64 = trace.hosts().iter().map(|host| f64::from(host.devices())).sum();
    let list = arrivals(requests, capacity * REQUESTED, &mut random);
    let mut order: Vec<&Host> = trace.hosts().iter().collect();
    random.shuffle(&mut order);
    let mut cloud = Cloud::new(order.into_iter().cloned(), policy, scorer.clone());
    let (mut requested, mut allocated, mut at_capacity) = (0.0, 0.0, None);
    for shape in &list {
        requested += shape.devices();
        if cloud.place(shape).is_some() {
            allocated += shape.devices();
        }
        if at_capacity.is_none() && requested >= capacity {
            at_capacity = Some(allocated);
        }
    }
    let percent = |devices: f64| devices / capacity.max(1.0) * 100.0;
    Outcome {
        at_capacity: percent(at_capacity.unwrap_or(allocated)),
        at_end: percent(allocated),
        decisions: list.len(),
    }
}

/// The requests in random order. Adds random ones until the next one would exceed `most` devices,
/// or removes random ones if they already exceed it.
fn arrivals(requests: &[Shape], most: f64, random: &mut Random) -> Vec<Shape> {
    let mut list = requests.to_vec();
    random.shuffle(&mut list);
    let mut sum: f64 = list.iter().map(Shape::devices).sum();
    let all = list.clone();
    while sum > most && !list.is_empty() {
        let left_out = list.remove(random.below(list.len()));
        sum -= left_out.devices();
    }
    while !all.is_empty() && sum > 0.0 {
        let next = all[random.below(all.len())];
        if sum + next.devices() > most {
            break;
        }
        sum += next.devices();
        list.push(next);
    }
    list
}
