//! The geometry of MIG: a profile occupies memory slices of a card at legal starts, and two
//! instances conflict if and only if their slices overlap.
//!
//! A [`Geometry`] is built from the placements that a card's driver reports. The tables of [`Card`]
//! are for cards that no driver has described, such as simulated ones; the driver's answer always
//! takes precedence over them.
//!
//! A request goes to the first legal start of a card. The starts of all 256 masks of occupied slices are computed once
//! for a card's geometry. [`Geometry::choose`], the fullest card first, is for the comparisons of `kilonova-bench`: the
//! product chooses host and device by packing, which prefers full cards too.

use std::cmp::Reverse;
use std::fmt;

/// The number of memory slices that a mask can hold.
pub const MAX_SLICES: u8 = 8;

/// The occupied memory slices of a card, bit 0 for the first one.
pub type Mask = u8;

/// A place of a profile on a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Placement {
    /// The first memory slice.
    pub start: u8,
    /// The number of memory slices.
    pub size: u8,
}

impl Placement {
    /// The occupied slices. Slices beyond the last one are left out.
    #[must_use]
    pub const fn mask(self) -> Mask {
        if self.start >= MAX_SLICES {
            return 0;
        }
        // The truncation drops the slices beyond the last one.
        (((1_u32 << (if self.size < MAX_SLICES { self.size } else { MAX_SLICES })) - 1)
            << self.start) as Mask
    }

    const fn end(self) -> u32 {
        self.start as u32 + self.size as u32
    }
}

/// A way to cut an instance out of a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// `3g.20gb`.
    pub name: String,
    /// The number of compute slices.
    pub compute: u8,
    /// The maximum number of instances on a card.
    pub most: u8,
    /// The places.
    pub placements: Vec<Placement>,
}

/// Placements that no card can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// The profile.
    pub profile: String,
    /// The reason.
    pub reason: String,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MIG profile {}: {}", self.profile, self.reason)
    }
}

impl std::error::Error for Invalid {}

/// The profiles of a card, and where each fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Geometry {
    slices: u8,
    profiles: Vec<Profile>,
    /// For each profile and mask the index of the first placement that is free.
    first: Vec<[Option<u8>; 256]>,
}

impl Geometry {
    /// The geometry of a card with this many memory slices.
    ///
    /// # Errors
    /// [`Invalid`] if a placement is not on the card, or a profile is listed twice.
    pub fn new(slices: u8, profiles: Vec<Profile>) -> Result<Self, Invalid> {
        for (at, profile) in profiles.iter().enumerate() {
            let wrong = |reason: String| Invalid { profile: profile.name.clone(), reason };
            if slices == 0 || slices > MAX_SLICES {
                return Err(wrong(format!("a card with {slices} memory slices is not supported")));
            }
            if profiles[..at].iter().any(|other| other.name == profile.name) {
                return Err(wrong("it is listed twice".to_owned()));
            }
            for one in &profile.placements {
                if one.size == 0 || one.end() > u32::from(slices) {
                    let Placement { start, size } = one;
                    return Err(wrong(format!(
                        "{size} slices from slice {start} are not on a card with {slices}"
                    )));
                }
            }
        }
        let mut profiles = profiles;
        for profile in &mut profiles {
            profile.placements.sort_unstable();
            profile.placements.dedup();
        }
        let first = profiles.iter().map(first_placements).collect();
        Ok(Self { slices, profiles, first })
    }

    /// The number of memory slices.
    #[must_use]
    pub const fn slices(&self) -> u8 {
        self.slices
    }

    /// The profiles, in the order in which they were given.
    #[must_use]
    pub fn profiles(&self) -> &[Profile] {
        &self.profiles
    }

    /// The index of a profile.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<usize> {
        self.profiles.iter().position(|profile| profile.name == name)
    }

    /// The first place of a profile among free slices, regardless of the profile's maximum number
    /// of instances.
    #[must_use]
    pub fn first(&self, profile: usize, occupied: Mask) -> Option<Placement> {
        let at = (*self.first.get(profile)?)[usize::from(occupied)]?;
        self.profiles[profile].placements.get(usize::from(at)).copied()
    }

    /// The place of one more instance on a card, if it fits.
    #[must_use]
    pub fn place(&self, profile: usize, on: &Instances) -> Option<Placement> {
        let most = self.profiles.get(profile)?.most;
        if on.count(profile) >= usize::from(most) { None } else { self.first(profile, on.occupied) }
    }

    /// The number of further instances of a profile that fit on a card. All places of a profile have the same size on
    /// the cards that exist, so taking the first free place never takes the room of two.
    #[must_use]
    pub fn fits(&self, profile: usize, on: &Instances) -> usize {
        let mut on = on.clone();
        let mut fits = 0;
        while let Some(place) = self.place(profile, &on) {
            if !on.add(profile, place) {
                break;
            }
            fits += 1;
        }
        fits
    }

    /// The card for one more instance and its place there: the fullest card on which it fits, and
    /// the first one among equal cards.
    #[must_use]
    pub fn choose<'a>(
        &self,
        profile: usize,
        cards: impl IntoIterator<Item = &'a Instances>,
    ) -> Option<(usize, Placement)> {
        let fits = cards.into_iter().enumerate().filter_map(|(at, card)| {
            let place = self.place(profile, card)?;
            Some((Reverse(card.occupied.count_ones()), at, place))
        });
        fits.min_by_key(|(fullness, at, _)| (*fullness, *at)).map(|(_, at, place)| (at, place))
    }
}

fn first_placements(profile: &Profile) -> [Option<u8>; 256] {
    let mut first = [None; 256];
    for (mask, first) in (0..=Mask::MAX).zip(&mut first) {
        let free = |one: &Placement| one.mask() & mask == 0;
        // A profile has at most one placement for each start and size, so the index fits.
        let at = profile.placements.iter().position(free);
        *first = at.and_then(|at| u8::try_from(at).ok());
    }
    first
}

/// The instances on a card.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Instances {
    occupied: Mask,
    placed: Vec<(usize, Placement)>,
}

impl Instances {
    /// The occupied slices.
    #[must_use]
    pub const fn occupied(&self) -> Mask {
        self.occupied
    }

    /// The instances: the index of the profile, and the place.
    #[must_use]
    pub fn placed(&self) -> &[(usize, Placement)] {
        &self.placed
    }

    /// The number of instances of a profile.
    #[must_use]
    pub fn count(&self, profile: usize) -> usize {
        self.placed.iter().filter(|(of, _)| *of == profile).count()
    }

    /// Adds an instance. Returns false, and changes nothing, if its slices are occupied.
    pub fn add(&mut self, profile: usize, place: Placement) -> bool {
        let free = self.occupied & place.mask() == 0;
        if free {
            self.occupied |= place.mask();
            self.placed.push((profile, place));
        }
        free
    }

    /// Occupies slices for something other than an instance of the geometry.
    pub const fn occupy(&mut self, place: Placement) {
        self.occupied |= place.mask();
    }

    /// Removes the instance at a place. Returns false if there is none.
    pub fn remove(&mut self, place: Placement) -> bool {
        let found = self.placed.iter().position(|(_, other)| *other == place);
        if let Some(at) = found {
            self.placed.swap_remove(at);
            self.occupied &= !place.mask();
        }
        found.is_some()
    }
}

/// A card whose geometry NVIDIA's MIG user guide lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Card {
    /// A30 with 24 GB.
    A30,
    /// A100 with 40 GB.
    A100,
    /// A100 or H100 with 80 GB.
    A100Large,
    /// H200 with 141 GB.
    H200,
    /// B200 with 180 GB.
    B200,
}

impl Card {
    /// All cards.
    pub const ALL: [Self; 5] = [Self::A30, Self::A100, Self::A100Large, Self::H200, Self::B200];

    /// The number of memory slices.
    #[must_use]
    pub const fn slices(self) -> u8 {
        match self {
            Self::A30 => 4,
            Self::A100 | Self::A100Large | Self::H200 | Self::B200 => 8,
        }
    }

    /// The profiles, the smallest one first.
    #[must_use]
    pub fn profiles(self) -> Vec<Profile> {
        match self {
            Self::A30 => rows(&[
                ("1g.6gb", 1, 1, 4, &[0, 1, 2, 3]),
                ("1g.6gb+me", 1, 1, 1, &[0, 1, 2, 3]),
                ("2g.12gb", 2, 2, 2, &[0, 2]),
                ("2g.12gb+me", 2, 2, 1, &[0, 2]),
                ("4g.24gb", 4, 4, 1, &[0]),
            ]),
            Self::A100 => sevenths(["5", "10", "20", "40"]),
            Self::A100Large => sevenths(["10", "20", "40", "80"]),
            Self::H200 => sevenths(["18", "35", "71", "141"]),
            Self::B200 => sevenths(["23", "45", "90", "180"]),
        }
    }
}

/// The profiles of a card with seven compute slices; the memory of one, two, four and eight slices.
fn sevenths([one, two, four, eight]: [&str; 4]) -> Vec<Profile> {
    let (all, even): (&[u8], &[u8]) = (&[0, 1, 2, 3, 4, 5, 6], &[0, 2, 4, 6]);
    rows(&[
        (&format!("1g.{one}gb"), 1, 1, 7, all),
        (&format!("1g.{one}gb+me"), 1, 1, 1, all),
        (&format!("1g.{two}gb"), 1, 2, 4, even),
        (&format!("2g.{two}gb"), 2, 2, 3, &[0, 2, 4]),
        (&format!("3g.{four}gb"), 3, 4, 2, &[0, 4]),
        (&format!("4g.{four}gb"), 4, 4, 1, &[0]),
        (&format!("7g.{eight}gb"), 7, 8, 1, &[0]),
    ])
}

/// Name, compute slices, memory slices, the maximum on a card, and the legal starts.
type Row<'a> = (&'a str, u8, u8, u8, &'a [u8]);

fn rows(rows: &[Row<'_>]) -> Vec<Profile> {
    let profile = |&(name, compute, size, most, starts): &Row<'_>| Profile {
        name: name.to_owned(),
        compute,
        most,
        placements: starts.iter().map(|&start| Placement { start, size }).collect(),
    };
    rows.iter().map(profile).collect()
}
