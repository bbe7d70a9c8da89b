//! Divides a long series of similar cases between the databases, so that each case runs on one of them.
//!
//! A shared series has every case at least once and every kind of case on every database. An error that occurs only in
//! one case and only on one database is missed if that case runs on the other database. `KILONOVA_CRASHES=all`, which
//! `make test-long` sets, runs every case on every database.

/// The cases of a series that run on one database. The databases alternate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// Every case.
    Whole,
    /// Every second case: those whose numbers are even for store 0, and odd for store 1.
    Half(usize),
}

impl Share {
    /// The share of the store with this number, out of `stores` stores. A single store has every case.
    pub fn of(store: usize, stores: usize) -> Self {
        let all = std::env::var("KILONOVA_CRASHES").is_ok_and(|text| text == "all");
        if stores < 2 || all { Self::Whole } else { Self::Half(store) }
    }

    /// True if the store has the case with this number.
    pub fn has(self, case: usize) -> bool {
        match self {
            Self::Whole => true,
            Self::Half(store) => (store + case).is_multiple_of(2),
        }
    }

    /// The minimum number of cases of a store, out of `cases` cases.
    pub fn least(self, cases: u32) -> u32 {
        match self {
            Self::Whole => cases,
            Self::Half(_) => cases / 2,
        }
    }
}

/// Each store, or a value that a test built from it, with its share.
pub fn shared<T>(stores: Vec<T>) -> impl Iterator<Item = (Share, T)> {
    let count = stores.len();
    stores.into_iter().enumerate().map(move |(at, one)| (Share::of(at, count), one))
}
