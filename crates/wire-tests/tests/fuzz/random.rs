//! Reproducible pseudo-random numbers.

/// SplitMix64.
pub struct Rng {
    state: u64,
    /// True if mutations are disabled for now.
    pub calm: bool,
}

impl Rng {
    /// The numbers of one request.
    pub fn of(seed: u64, index: u64) -> Self {
        let state = seed ^ index.wrapping_mul(0xd134_2543_de82_ef95);
        let mut rng = Self { state, calm: false };
        rng.next();
        rng
    }

    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end.max(1) as u64).unwrap_or(0)
    }

    /// True with a probability of 1/`n`.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// True with a probability of 1/`n`, unless mutations are disabled.
    pub fn odd(&mut self, n: usize) -> bool {
        !self.calm && self.one_in(n)
    }

    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    pub fn word(&mut self, all: &[&'static str]) -> &'static str {
        all[self.below(all.len())]
    }
}
