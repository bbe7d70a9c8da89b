//! The state of a host, and the shape of a request.

use crate::islands::{Islands, normalize};

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
    pub const MAX: u8 = 64;

    /// Any model.
    pub const ANY: Self = Self(0);

    /// These models; any, if the list is empty. Models from [`Models::MAX`] on are not
    /// distinguished.
    #[must_use]
    pub fn of(models: impl IntoIterator<Item = Model>) -> Self {
        Self(models.into_iter().fold(0, |all, model| all | 1 << (model.0 % Self::MAX)))
    }

    /// True if a host with this model is accepted.
    #[must_use]
    pub const fn accepts(self, model: Model) -> bool {
        self.0 == 0 || self.0 & (1 << (model.0 % Self::MAX)) != 0
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

/// A device of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device {
    /// Free thousandths.
    pub free: u16,
    /// The thousandths of its card that requests of other kinds could use.
    pub others: u16,
    /// Its island: devices of the host that are all connected to each other have the same number.
    pub island: Option<u16>,
}

impl Device {
    /// A device that serves requests of one kind, in no island.
    #[must_use]
    pub const fn of(free: u16) -> Self {
        Self { free, others: 0, island: None }
    }
}

/// The free resources of a host.
///
/// Two hosts are equal if they differ only in the numbering of devices and islands.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Host {
    /// Thousandths of a CPU.
    pub cpu: u32,
    /// MiB.
    pub memory: u32,
    /// The model of its devices.
    pub model: Model,
    /// Free thousandths of the devices, most first. Devices with equal remainders are interchangeable, except for
    /// `others` and `islands`.
    free: Box<[u16]>,
    /// For each device, the thousandths of its card that requests of other kinds could use; the smallest value first
    /// among devices with equal remainders. Empty if there are none.
    others: Box<[u16]>,
    /// For each device, its island in the normal form; 0 for a device in none. Empty if there are no islands.
    islands: Box<[u16]>,
}

impl Host {
    /// A host with these free resources.
    #[must_use]
    pub fn new(cpu: u32, memory: u32, model: Model, mut free: Vec<u16>) -> Self {
        free.sort_unstable_by(|a, b| b.cmp(a));
        let (others, islands) = (Box::default(), Box::default());
        Self { cpu, memory, model, free: free.into(), others, islands }
    }

    /// A host whose devices are in islands, or are parts of cards that serve other kinds of requests as well. An island
    /// with a single device does not count.
    #[must_use]
    pub fn of_devices(cpu: u32, memory: u32, model: Model, mut devices: Vec<Device>) -> Self {
        if devices.iter().all(|one| one.others == 0 && one.island.is_none()) {
            return Self::new(cpu, memory, model, devices.iter().map(|one| one.free).collect());
        }
        normalize(&mut devices);
        let others: Vec<u16> = match devices.iter().all(|one| one.others == 0) {
            true => Vec::new(),
            false => devices.iter().map(|one| one.others).collect(),
        };
        let islands: Vec<u16> = match devices.iter().all(|one| one.island.is_none()) {
            true => Vec::new(),
            false => devices.iter().map(|one| one.island.unwrap_or(0)).collect(),
        };
        let free: Vec<u16> = devices.iter().map(|one| one.free).collect();
        Self {
            cpu,
            memory,
            model,
            free: free.into(),
            others: others.into(),
            islands: islands.into(),
        }
    }

    /// The devices, as [`Host::of_devices`] takes them.
    #[must_use]
    pub fn each_device(&self) -> Vec<Device> {
        let others = self.others.iter().copied().chain(std::iter::repeat(0));
        let islands = self.islands.iter().copied().chain(std::iter::repeat(0));
        let each = self.free.iter().zip(others.zip(islands));
        let device = |(free, (others, island)): (&u16, (u16, u16))| Device {
            free: *free,
            others,
            island: (island > 0).then_some(island),
        };
        each.map(device).collect()
    }

    /// True if some of its devices are in islands.
    #[must_use]
    pub fn has_islands(&self) -> bool {
        !self.islands.is_empty()
    }

    /// The free thousandths of devices outside whole islands: devices in no island, or in an island that is partly in
    /// use. 0 for a host without islands.
    #[must_use]
    pub fn outside_whole_islands(&self) -> u32 {
        if !self.has_islands() {
            return 0;
        }
        let devices = self.each_device();
        self.total() - Islands::of(&devices).whole()
    }

    /// True if a request for several whole devices gets devices that are not all in one island; false for a host
    /// without islands, and for a request that does not fit.
    #[must_use]
    pub fn splits(&self, shape: &Shape) -> bool {
        if !self.has_islands() || shape.count < 2 || shape.share < WHOLE {
            return false;
        }
        let devices = self.each_device();
        let islands = Islands::of(&devices);
        let taken = islands.choose(usize::from(shape.count), WHOLE, WHOLE);
        taken.is_some_and(|taken| islands.are_split(&taken))
    }

    /// The thousandths that requests of other kinds could use of the card from which a request takes a device with this
    /// remainder. It is the fullest such card.
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

    /// The state after the request. `remainder` is the free remainder of the device from which a share is taken. Whole
    /// devices are interchangeable, and each of several shares comes from the device with the smallest sufficient
    /// remainder. Among devices with equal remainders, the request takes those that leave the most devices in whole
    /// islands. `None` if it does not fit.
    #[must_use]
    pub fn after(&self, shape: &Shape, remainder: Option<u16>) -> Option<Self> {
        if !self.fits(shape) {
            return None;
        }
        let (cpu, memory) = (self.cpu - shape.cpu, self.memory - shape.memory);
        if self.are_interchangeable() {
            let mut free = self.free.to_vec();
            take(&mut free, |free| (*free, 0), |free| free, shape, remainder)?;
            return Some(Self::new(cpu, memory, self.model, free));
        }
        let mut devices = self.each_device();
        if !self.has_islands() {
            let order = |one: &Device| (one.free, one.others);
            take(&mut devices, order, |one| &mut one.free, shape, remainder)?;
        } else if shape.are_shares() {
            for _ in 0..shape.count {
                let at = Islands::of(&devices).tightest(shape.share)?;
                devices[at].free -= shape.share;
            }
        } else if shape.is_accelerated() {
            let wanted = remainder.unwrap_or(WHOLE);
            if wanted < shape.share {
                return None;
            }
            let count = usize::from(shape.count);
            let taken = Islands::of(&devices).choose(count, wanted, shape.share)?;
            taken.into_iter().for_each(|at| devices[at].free -= shape.share);
        }
        Some(Self::of_devices(cpu, memory, self.model, devices))
    }

    /// True if devices with equal remainders are interchangeable. Most hosts are of this kind and take a faster path.
    fn are_interchangeable(&self) -> bool {
        self.others.is_empty() && self.islands.is_empty()
    }

    /// The state after the release of a request whose devices have these remainders now. Devices with equal remainders
    /// are not distinguished.
    #[must_use]
    pub fn without(&self, shape: &Shape, remainders: &[u16]) -> Option<Self> {
        let (cpu, memory) = (self.cpu + shape.cpu, self.memory + shape.memory);
        if self.are_interchangeable() {
            let mut free = self.free.to_vec();
            for remainder in remainders {
                let at = free.iter().position(|free| free == remainder)?;
                free[at] = free[at].checked_add(shape.share)?;
            }
            return Some(Self::new(cpu, memory, self.model, free));
        }
        let mut devices = self.each_device();
        for remainder in remainders {
            let at = devices.iter().position(|one| one.free == *remainder)?;
            devices[at].free = devices[at].free.checked_add(shape.share)?;
        }
        Some(Self::of_devices(cpu, memory, self.model, devices))
    }
}

/// Takes the shares of a request from devices of a host without islands, in the normal order. `order` returns a
/// device's remainder, and its rank among devices with equal remainders.
fn take<D>(
    devices: &mut [D],
    order: impl Fn(&D) -> (u16, u16),
    free: impl Fn(&mut D) -> &mut u16,
    shape: &Shape,
    remainder: Option<u16>,
) -> Option<()> {
    if shape.are_shares() {
        for _ in 0..shape.count {
            let fitting = devices.iter_mut().filter(|one| order(one).0 >= shape.share);
            *free(fitting.min_by_key(|one| order(one))?) -= shape.share;
        }
    } else if shape.is_accelerated() {
        let wanted = remainder.unwrap_or(WHOLE);
        let first = devices.iter().position(|one| order(one).0 == wanted)?;
        let taken = devices.get_mut(first..first + usize::from(shape.count))?;
        if wanted < shape.share || taken.iter().any(|one| order(one).0 != wanted) {
            return None;
        }
        taken.iter_mut().for_each(|one| *free(one) -= shape.share);
    }
    Some(())
}
