//! The compared policies.

use kilonova_packing::{Cost, Host, Profile, Scorer, Shape, Weights, fragment};

/// A policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// The host with the least room, by CPU and devices in equal parts.
    BestFit,
    /// The host whose fragment grows least (Weng et al., USENIX ATC 2023).
    Fgd,
    /// Kilonova's own policy.
    Kilonova,
}

impl Policy {
    /// Its name in the published results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BestFit => "BestFit",
            Self::Fgd => "FGD",
            Self::Kilonova => "Kilonova",
        }
    }

    /// Its scorer for a demand.
    pub fn scorer(self, profile: &Profile, weights: Weights) -> Rating {
        match self {
            Self::BestFit => Rating::BestFit,
            Self::Fgd => Rating::Fgd(profile.clone()),
            Self::Kilonova => Rating::Kilonova(Cost { profile: profile.clone(), weights }),
        }
    }
}

/// The scorer of a policy.
#[derive(Clone)]
pub enum Rating {
    /// For [`Policy::BestFit`].
    BestFit,
    /// For [`Policy::Fgd`].
    Fgd(Profile),
    /// For [`Policy::Kilonova`].
    Kilonova(Cost),
}

impl Scorer for Rating {
    fn score(&self, before: &Host, after: &Host, shape: &Shape) -> f64 {
        match self {
            // The published scores are whole numbers from 0 to 100.
            Self::BestFit => {
                let room = f64::from(after.cpu) / 128_000.0 + f64::from(after.total()) / 8_000.0;
                (100.0 * (1.0 - room / 2.0)).floor()
            }
            Self::Fgd(profile) => {
                let gain = fragment(before, profile).0 - fragment(after, profile).0;
                (100.0 / (1.0 + (-gain).exp())).floor()
            }
            Self::Kilonova(cost) => cost.score(before, after, shape),
        }
    }
}
