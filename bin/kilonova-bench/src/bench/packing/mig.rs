//! GPUs that are cut into MIG instances: requests arrive and depart, with types that are fixed
//! beforehand, with empty cards that change their type, and with mixed cards.
//!
//! The cards are either those of a geometry alone, or those of simulated hosts, which Kilonova's scheduler and ledger
//! assign.

mod hosts;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use kilonova_packing::mig::{Card, Geometry, Instances, Placement};

use self::hosts::Hosts;
use super::mean;
use super::random::Random;
use crate::bench::table::{Aim, Table};

/// The start and the end of the measurement, in mean lifetimes.
const WARM: f64 = 4.0;
const END: f64 = 10.0;
/// The interval at which a turning mix is reversed, in mean lifetimes.
const TURN: f64 = 0.5;
/// The gain over static types in equal parts.
const GAIN: f64 = 1.10;

/// The profiles of the mixes.
const PROFILES: [&str; 6] = ["1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"];

/// The proportions of the profiles in the requests.
struct Mix {
    name: &'static str,
    parts: [usize; 6],
    /// True if the proportions are reversed and restored periodically.
    alternates: bool,
}

const fn mix(name: &'static str, parts: [usize; 6], alternates: bool) -> Mix {
    Mix { name, parts, alternates }
}

const MIXES: [Mix; 7] = [
    mix("uniform", [1; 6], false),
    mix("small", [45, 15, 20, 12, 5, 3], false),
    mix("large", [10, 5, 15, 30, 20, 20], false),
    mix("bimodal", [50, 5, 5, 5, 5, 30], false),
    mix("middle", [10, 20, 40, 20, 5, 5], false),
    mix("small, turning", [45, 15, 20, 12, 5, 3], true),
    mix("middle, turning", [10, 20, 40, 20, 5, 5], true),
];

/// The cards on which a request may be placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProfilePolicy {
    /// Each profile has as many cards as the others.
    EqualParts,
    /// A card without instances may change its profile.
    Retyped,
    /// A card has instances of different profiles.
    Mixed,
}

const PROFILE_POLICIES: [ProfilePolicy; 3] =
    [ProfilePolicy::EqualParts, ProfilePolicy::Retyped, ProfilePolicy::Mixed];

/// The cards of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CardSource {
    /// Those of a geometry: each request gets the fullest card on which it fits.
    Geometry,
    /// Those of simulated hosts: Kilonova's scheduler chooses, and its ledger assigns.
    Hosts,
}

/// A fleet of cards.
trait Fleet {
    /// An instance in use.
    type Guest: Ord + Copy;

    /// Places a request of a profile, an index of [`PROFILES`]; `None` if it is refused.
    fn place(&mut self, wanted: usize) -> Result<Option<Self::Guest>, String>;

    /// Deletes a guest.
    fn remove(&mut self, guest: Self::Guest) -> Result<(), String>;
}

/// Runs the mixes whose names begin with `mix` on `cards` cards. Returns a table.
pub fn run(of: CardSource, mix: &str, cards: usize, seeds: u64) -> Result<Table, String> {
    let geometry = a100()?;
    let columns = ["equal parts", "retyped", "mixed"].map(str::to_owned);
    let cards = match of {
        CardSource::Geometry => cards,
        CardSource::Hosts => cards.next_multiple_of(PROFILES.len()),
    };
    let by = match of {
        CardSource::Geometry => "the geometry alone",
        CardSource::Hosts => "scheduler and ledger, SQLite",
    };
    let title = format!(
        "MIG, {by}: {cards} cards, {seeds} seeds, 100 % of the compute slices requested at any \
         time; compute slices accepted"
    );
    let mut table = Table::new(title, columns);
    for mix in MIXES.iter().filter(|one| one.name.starts_with(mix)) {
        let mut accepted = [0.0; 3];
        for (accepted, policy) in accepted.iter_mut().zip(PROFILE_POLICIES) {
            let one = |seed| match of {
                CardSource::Geometry => {
                    one(&geometry, mix, seed, cards, &mut Cards::new(&geometry, policy, cards))
                }
                CardSource::Hosts => {
                    one(&geometry, mix, seed, cards, &mut Hosts::new(&geometry, policy, cards)?)
                }
            };
            let each: Vec<f64> = (0..seeds.max(1)).map(one).collect::<Result<_, String>>()?;
            *accepted = mean(each.into_iter());
        }
        let [equal, retyped, mixed] = accepted;
        table.row(mix.name, "%", None, accepted.map(Some));
        let gains = [None, Some(retyped / equal), Some(mixed / equal)];
        table.row(format!("{}: beside equal parts", mix.name), "x", Some(Aim::Least(GAIN)), gains);
    }
    Ok(table)
}

fn a100() -> Result<Geometry, String> {
    let card = Card::A100;
    Geometry::new(card.slices(), card.profiles()).map_err(|invalid| invalid.to_string())
}

/// The profiles of the mixes in a geometry.
fn profiles(geometry: &Geometry) -> [usize; 6] {
    PROFILES.map(|name| geometry.find(name).unwrap_or_default())
}

/// The compute slices that were accepted, in percent of those requested.
fn one<F: Fleet>(
    geometry: &Geometry,
    mix: &Mix,
    seed: u64,
    cards: usize,
    fleet: &mut F,
) -> Result<f64, String> {
    let mut random = Random::new(seed);
    let compute = profiles(geometry).map(|profile| f64::from(geometry.profiles()[profile].compute));
    let opposite = mix.alternates.then(|| {
        let mut parts = mix.parts;
        parts.reverse();
        parts
    });
    let mut ends: BinaryHeap<Reverse<(u64, F::Guest)>> = BinaryHeap::new();
    let (mut now, mut requested, mut accepted) = (0.0_f64, 0.0, 0.0);
    loop {
        let is_opposite = (now / TURN) as u64 % 2 == 1;
        let parts = opposite.as_ref().filter(|_| is_opposite).unwrap_or(&mix.parts);
        let all: usize = parts.iter().sum();
        let slices: f64 = parts.iter().zip(compute).map(|(part, of)| *part as f64 * of).sum();
        let rate = cards as f64 * 7.0 / (slices / all as f64);
        now += random.exponential() / rate;
        if now > END {
            return Ok(accepted / requested * 100.0);
        }
        while let Some(Reverse((at, guest))) = ends.peek().copied() {
            // Positive floating-point numbers sort like their bits.
            if f64::from_bits(at) > now {
                break;
            }
            ends.pop();
            fleet.remove(guest)?;
        }
        let mut lot = random.below(all);
        let wanted = parts.iter().position(|part| {
            let is_it = lot < *part;
            lot = lot.saturating_sub(*part);
            is_it
        });
        let wanted = wanted.unwrap_or_default();
        let life = (random.normal() - 0.5).exp();
        let counts = if now > WARM { compute[wanted] } else { 0.0 };
        requested += counts;
        if let Some(guest) = fleet.place(wanted)? {
            accepted += counts;
            ends.push(Reverse(((now + life).to_bits(), guest)));
        }
    }
}

struct Cards<'a> {
    geometry: &'a Geometry,
    policy: ProfilePolicy,
    /// The profile of each card. Mixed cards have none.
    kinds: Vec<usize>,
    cards: Vec<Instances>,
}

impl<'a> Cards<'a> {
    fn new(geometry: &'a Geometry, policy: ProfilePolicy, cards: usize) -> Self {
        let kinds = profiles(geometry).into_iter().cycle().take(cards).collect();
        Self { geometry, policy, kinds, cards: vec![Instances::default(); cards] }
    }
}

impl Fleet for Cards<'_> {
    type Guest = (usize, Placement);

    fn place(&mut self, wanted: usize) -> Result<Option<Self::Guest>, String> {
        let profile = profiles(self.geometry)[wanted];
        let may = |at: &usize| match self.policy {
            ProfilePolicy::EqualParts => self.kinds[*at] == profile,
            ProfilePolicy::Retyped => {
                self.kinds[*at] == profile || self.cards[*at].placed().is_empty()
            }
            ProfilePolicy::Mixed => true,
        };
        let cards: Vec<usize> = (0..self.cards.len()).filter(may).collect();
        let among = cards.iter().map(|&at| &self.cards[at]);
        let Some((index, place)) = self.geometry.choose(profile, among) else { return Ok(None) };
        let card = cards[index];
        self.kinds[card] = profile;
        Ok(self.cards[card].add(profile, place).then_some((card, place)))
    }

    fn remove(&mut self, (card, place): Self::Guest) -> Result<(), String> {
        self.cards[card].remove(place);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(geometry: &Geometry, mix: &Mix, policy: ProfilePolicy, cards: usize) -> f64 {
        one(geometry, mix, 0, cards, &mut Cards::new(geometry, policy, cards)).expect("it runs")
    }

    #[test]
    fn retyped_and_mixed_cards_accept_more_than_static_ones() {
        let geometry = a100().expect("a valid table");
        for mix in &MIXES {
            let [equal, retyped, mixed] =
                PROFILE_POLICIES.map(|policy| accepted(&geometry, mix, policy, 400));
            assert!(retyped >= GAIN * equal, "{}: {retyped} beside {equal}", mix.name);
            assert!(mixed >= GAIN * equal, "{}: {mixed} beside {equal}", mix.name);
            assert!(mixed > retyped, "{}: {mixed} beside {retyped}", mix.name);
        }
    }

    /// Cards with a fixed profile leave no choice, so the ledger accepts exactly what fits in the geometry.
    #[test]
    fn scheduler_and_ledger_accept_what_fits() {
        let (geometry, mix) = (a100().expect("a valid table"), &MIXES[0]);
        for policy in PROFILE_POLICIES {
            let mut hosts = Hosts::new(&geometry, policy, 6).expect("the hosts report");
            let ledger = one(&geometry, mix, 0, 6, &mut hosts).expect("it runs");
            let alone = accepted(&geometry, mix, policy, 6);
            match policy {
                ProfilePolicy::EqualParts => {
                    assert!((ledger - alone).abs() < 1e-9, "{ledger} {alone}")
                }
                ProfilePolicy::Retyped | ProfilePolicy::Mixed => {
                    assert!(ledger > 0.8 * alone, "{policy:?}: {ledger} beside {alone}");
                }
            }
        }
    }
}
