//! The expected requests: learned shapes with their weights, and the form of the demand that
//! scoring uses.

use std::collections::HashMap;

use crate::state::{Host, Model, Models, Shape, WHOLE};

/// Maximum number of remembered shapes.
const MAX_SHAPES: usize = 512;

/// The fraction of requests, by number, that counts as typical.
const TYPICAL_FRACTION: f64 = 0.95;

/// How often each shape was requested, in both placed and refused requests. Memory is not part of a
/// shape here.
#[derive(Debug, Clone, Default)]
pub struct Demand {
    shapes: HashMap<Shape, f64>,
}

impl Demand {
    /// Counts a request. A new shape replaces the rarest one if there are too many.
    pub fn record(&mut self, shape: Shape, weight: f64) {
        let shape = Shape { memory: 0, ..shape };
        if self.shapes.len() >= MAX_SHAPES && !self.shapes.contains_key(&shape) {
            let rarest = self.shapes.iter().min_by(|a, b| a.1.total_cmp(b.1).then(a.0.cmp(b.0)));
            if let Some(rarest) = rarest.map(|(shape, _)| *shape) {
                self.shapes.remove(&rarest);
            }
        }
        *self.shapes.entry(shape).or_default() += weight;
    }

    /// Halves all weights, so that old requests lose influence.
    pub fn fade(&mut self) {
        self.shapes.retain(|_, weight| {
            *weight /= 2.0;
            *weight > 0.01
        });
    }

    /// The shapes and their weights, most frequent first.
    #[must_use]
    pub fn shapes(&self) -> Vec<(Shape, f64)> {
        let mut shapes: Vec<_> =
            self.shapes.iter().map(|(shape, weight)| (*shape, *weight)).collect();
        shapes.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        shapes
    }

    /// Prepares scoring on a cloud with this many devices of each model.
    #[must_use]
    pub fn profile(&self, supply: &[(Model, u32)]) -> Profile {
        Profile::new(&self.shapes(), supply)
    }
}

/// A typical shape.
#[derive(Debug, Clone, Copy)]
pub struct Typical {
    /// The shape, without memory.
    pub shape: Shape,
    /// Its fraction of the requests.
    pub weight: f64,
    /// Its fraction of the requested devices.
    pub device_weight: f64,
}

/// The demand in the form that scoring uses.
#[derive(Debug, Clone)]
pub struct Profile {
    /// Typical shapes.
    pub typical: Vec<Typical>,
    /// The fraction of the requested devices that is requested as shares.
    pub shared: f64,
    /// Thousandths of a CPU requested per device.
    pub cpu_per_device: f64,
    /// By model: the fraction of the requested devices that must be of this model, relative to the
    /// model's fraction of all devices.
    scarcity: Vec<f64>,
}

impl Profile {
    fn new(shapes: &[(Shape, f64)], supply: &[(Model, u32)]) -> Self {
        let all: f64 = shapes.iter().map(|(_, weight)| weight).sum();
        let mut kept = Vec::new();
        let mut seen = 0.0;
        for (shape, weight) in shapes {
            if seen >= TYPICAL_FRACTION * all {
                break;
            }
            seen += weight;
            kept.push((*shape, *weight));
        }
        let devices: f64 = kept.iter().map(|(shape, weight)| weight * shape.devices()).sum();
        let typical = kept.iter().map(|(shape, weight)| Typical {
            shape: *shape,
            weight: weight / seen.max(f64::MIN_POSITIVE),
            device_weight: weight * shape.devices() / devices.max(f64::MIN_POSITIVE),
        });
        let requested: f64 = shapes.iter().map(|(shape, weight)| weight * shape.devices()).sum();
        let cpu: f64 = shapes.iter().map(|(shape, weight)| weight * f64::from(shape.cpu)).sum();
        let supplied: f64 = supply.iter().map(|(_, count)| f64::from(*count)).sum();
        let mut scarcity = vec![0.0; usize::from(Models::MAX)];
        for (model, count) in supply {
            let insists = |models: Models| {
                if models.insists() && models.accepts(*model) {
                    1.0 / f64::from(models.count())
                } else {
                    0.0
                }
            };
            let share: f64 = shapes
                .iter()
                .map(|(shape, weight)| weight * shape.devices() * insists(shape.models))
                .sum::<f64>()
                / requested.max(f64::MIN_POSITIVE);
            let part = f64::from(*count) / supplied.max(f64::MIN_POSITIVE);
            scarcity[usize::from(model.0 % Models::MAX)] =
                if part > 0.0 { share / part } else { 0.0 };
        }
        let typical: Vec<Typical> = typical.collect();
        let shares = typical.iter().filter(|typical| typical.shape.share < WHOLE);
        Self {
            shared: shares.map(|typical| typical.device_weight).sum(),
            typical,
            cpu_per_device: if requested > 0.0 { cpu / requested } else { 0.0 },
            scarcity,
        }
    }

    /// The scarcity of a host's model.
    #[must_use]
    pub fn scarcity(&self, host: &Host) -> f64 {
        self.scarcity[usize::from(host.model.0 % Models::MAX)]
    }
}
