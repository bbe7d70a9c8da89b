//! The state of a host, and the shape of a request.

/// A whole device, in thousandths.
pub const WHOLE: u16 = 1000;

/// A model of accelerators: an index that the caller assigns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Model(pub u8);

/// The models that a request accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Models(u64);

impl Models {
    /// The number of models that can be distinguished.
    pub const MOST: u8 = 64;

    /// Any model.
    pub const ANY: Self = Self(0);

    /// These models; any, if the list is empty. Models from [`Models::MOST`] on are not
    /// distinguished.
    #[must_use]
    pub fn of(models: impl IntoIterator<Item = Model>) -> Self {
        Self(models.into_iter().fold(0, |all, model| all | 1 << (model.0 % Self::MOST)))
    }

    /// True if a host with this model is accepted.
    #[must_use]
    pub const fn accepts(self, model: Model) -> bool {
        self.0 == 0 || self.0 & (1 << (model.0 % Self::MOST)) != 0
    }

    /// True if the request requires a model.
    #[must_use]
    pub const fn insists(self) -> bool {
        self.0 != 0
    }

    /// The number of accepted models; 0 for any.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }
}

/// The resources of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape {
    /// Thousandths of a CPU.
    pub cpu: u32,
    /// MiB.
    pub memory: u32,
    /// Number of devices.
    pub count: u8,
    /// Thousandths of each device: [`WHOLE`], or a share of one.
    pub share: u16,
    /// The accepted models.
    pub models: Models,
}

impl Shape {
    /// The requested devices, in whole devices.
    #[must_use]
    pub fn devices(&self) -> f64 {
        f64::from(self.count) * f64::from(self.share) / f64::from(WHOLE)
    }

    /// True if it requests several shares.
    const fn are_shares(&self) -> bool {
        self.count > 1 && self.share > 0 && self.share < WHOLE
    }

    /// True if it requests devices.
    #[must_use]
    pub const fn is_accelerated(&self) -> bool {
        self.count > 0 && self.share > 0
    }
}

/// The free resources of a host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Host {
    /// Thousandths of a CPU.
    pub cpu: u32,
    /// MiB.
    pub memory: u32,
    /// The model of its devices.
    pub model: Model,
    /// Free thousandths of the devices, most first. Devices with equal remainders are interchangeable.
    free: Box<[u16]>,
    /// For each device, the thousandths of its card that requests of other kinds could have; the least first among
    /// devices with equal remainders. Empty if there are none.
    others: Box<[u16]>,
}

impl Host {
    /// A host with these free resources.
    #[must_use]
    pub fn new(cpu: u32, memory: u32, model: Model, mut free: Vec<u16>) -> Self {
        free.sort_unstable_by(|a, b| b.cmp(a));
        Self { cpu, memory, model, free: free.into(), others: Box::default() }
    }

    /// A host whose devices are parts of cards that serve other kinds of requests as well: the free thousandths of
    /// each device, and the thousandths of its card that the others could have.
    #[must_use]
    pub fn of_cards(cpu: u32, memory: u32, model: Model, mut devices: Vec<(u16, u16)>) -> Self {
        if devices.iter().all(|(_, others)| *others == 0) {
            let free = devices.into_iter().map(|(free, _)| free).collect();
            return Self::new(cpu, memory, model, free);
        }
        devices.sort_unstable_by_key(|(free, others)| (std::cmp::Reverse(*free), *others));
        let (free, others): (Vec<u16>, Vec<u16>) = devices.into_iter().unzip();
        Self { cpu, memory, model, free: free.into(), others: others.into() }
    }

    /// The devices, as [`Host::of_cards`] takes them.
    fn devices_of_cards(&self) -> Vec<(u16, u16)> {
        let others = self.others.iter().copied().chain(std::iter::repeat(0));
        self.free.iter().copied().zip(others).collect()
    }

    /// The thousandths that others could have of the card from which a request with this remainder takes its device: the
    /// fullest one with the remainder.
    #[must_use]
    pub fn others(&self, remainder: u16) -> u16 {
        let at = self.free.iter().position(|free| *free == remainder);
        at.and_then(|at| self.others.get(at)).copied().unwrap_or(0)
    }

    /// Number of its devices, used or not.
    #[must_use]
    pub fn devices(&self) -> u32 {
        u32::try_from(self.free.len()).unwrap_or(u32::MAX)
    }

    /// Free thousandths of the devices, most first.
    #[must_use]
    pub fn free(&self) -> &[u16] {
        &self.free
    }

    /// Free devices, in thousandths.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.free.iter().map(|free| u32::from(*free)).sum()
    }

    /// Number of unused devices.
    #[must_use]
    pub fn whole(&self) -> usize {
        self.free.iter().take_while(|free| **free >= WHOLE).count()
    }

    /// True if no device is used.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.whole() == self.free.len()
    }

    /// True if CPU, model and devices suffice. Memory is not examined.
    #[must_use]
    pub fn could_hold(&self, shape: &Shape) -> bool {
        self.cpu >= shape.cpu
            && (!shape.is_accelerated()
                || shape.models.accepts(self.model) && self.has_devices(shape))
    }

    /// True if the devices suffice. Several shares may come from one device.
    fn has_devices(&self, shape: &Shape) -> bool {
        if shape.are_shares() {
            let shares = self.free.iter().map(|free| u32::from(free / shape.share));
            return shares.sum::<u32>() >= u32::from(shape.count);
        }
        let last = self.free.get(usize::from(shape.count) - 1);
        last.is_some_and(|free| *free >= shape.share)
    }

    /// True if the request fits.
    #[must_use]
    pub fn fits(&self, shape: &Shape) -> bool {
        self.memory >= shape.memory && self.could_hold(shape)
    }

    /// The state after the request. `remainder` is the free remainder of the device from which a
    /// share is taken. Whole devices are interchangeable, and each of several shares comes from the
    /// device with the smallest sufficient remainder. `None` if it does not fit.
    #[must_use]
    pub fn after(&self, shape: &Shape, remainder: Option<u16>) -> Option<Self> {
        if !self.fits(shape) {
            return None;
        }
        let mut free = self.devices_of_cards();
        if shape.is_accelerated() {
            for _ in 0..shape.count {
                let at = if shape.are_shares() {
                    let fitting = (0..free.len()).filter(|at| free[*at].0 >= shape.share);
                    fitting.min_by_key(|at| free[*at])?
                } else {
                    let wanted = remainder.unwrap_or(WHOLE);
                    free.iter().position(|(free, _)| *free == wanted && wanted >= shape.share)?
                };
                free[at].0 -= shape.share;
            }
        }
        Some(Self::of_cards(self.cpu - shape.cpu, self.memory - shape.memory, self.model, free))
    }

    /// The state after the release of a request whose devices have these remainders now.
    #[must_use]
    pub fn without(&self, shape: &Shape, remainders: &[u16]) -> Option<Self> {
        let mut free = self.devices_of_cards();
        for remainder in remainders {
            let at = free.iter().position(|(free, _)| free == remainder)?;
            free[at].0 = free[at].0.checked_add(shape.share)?;
        }
        Some(Self::of_cards(self.cpu + shape.cpu, self.memory + shape.memory, self.model, free))
    }
}
