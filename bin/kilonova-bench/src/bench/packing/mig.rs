//! GPUs that are cut into MIG instances: requests arrive and depart, with types that are fixed
//! beforehand, with empty cards that change their type, and with mixed cards.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use kilonova_packing::mig::{Card, Geometry, Instances, Placement};

use super::mean;
use super::random::Random;
use crate::bench::table::{Aim, Table};

/// The start and the end of the measurement, in mean lifetimes.
const WARM: f64 = 4.0;
const END: f64 = 10.0;
/// How long a mix that turns stays the same, in mean lifetimes.
const TURN: f64 = 0.5;
/// The gain over static types in equal parts.
const GAIN: f64 = 1.10;

/// The profiles of the mixes.
const PROFILES: [&str; 6] = ["1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"];

/// How many requests of a hundred ask for each profile.
struct Mix {
    name: &'static str,
    parts: [usize; 6],
    /// True if the mix turns to its opposite and back.
    turns: bool,
}

const fn mix(name: &'static str, parts: [usize; 6], turns: bool) -> Mix {
    Mix { name, parts, turns }
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
enum Typing {
    /// Each profile has as many cards as the others.
    EqualParts,
    /// A card without instances may change its profile.
    Retyped,
    /// A card has instances of different profiles.
    Mixed,
}

const TYPINGS: [Typing; 3] = [Typing::EqualParts, Typing::Retyped, Typing::Mixed];

/// Runs the mixes on so many cards. Returns a table.
pub fn run(cards: usize, seeds: u64) -> Result<Table, String> {
    let a100 = Card::A100;
    let geometry =
        Geometry::new(a100.slices(), a100.profiles()).map_err(|invalid| invalid.to_string())?;
    let columns = ["equal parts", "retyped", "mixed"].map(str::to_owned);
    let title = format!(
        "MIG: {cards} cards, {seeds} seeds, 100 % of the compute slices requested at any time; \
         compute slices accepted"
    );
    let mut table = Table::new(title, columns);
    for mix in &MIXES {
        let accepted = TYPINGS.map(|typing| {
            mean(
                (0..seeds.max(1))
                    .map(|seed| one(&geometry, mix, typing, cards, seed))
                    .collect::<Vec<_>>()
                    .into_iter(),
            )
        });
        let [equal, retyped, mixed] = accepted;
        table.row(mix.name, "%", None, accepted.map(Some));
        let gains = [None, Some(retyped / equal), Some(mixed / equal)];
        table.row(format!("{}: beside equal parts", mix.name), "x", Some(Aim::Least(GAIN)), gains);
    }
    Ok(table)
}

/// The compute slices that were accepted, in percent of those requested.
fn one(geometry: &Geometry, mix: &Mix, typing: Typing, cards: usize, seed: u64) -> f64 {
    let mut random = Random::new(seed);
    let profiles = PROFILES.map(|name| geometry.find(name).unwrap_or_default());
    let compute = profiles.map(|profile| f64::from(geometry.profiles()[profile].compute));
    let opposite = mix.turns.then(|| {
        let mut parts = mix.parts;
        parts.reverse();
        parts
    });
    let mut fleet = Fleet::new(geometry, typing, &profiles, cards);
    let mut ends: BinaryHeap<Reverse<(u64, usize, Placement)>> = BinaryHeap::new();
    let (mut now, mut requested, mut accepted) = (0.0_f64, 0.0, 0.0);
    loop {
        let is_opposite = (now / TURN) as u64 % 2 == 1;
        let parts = opposite.as_ref().filter(|_| is_opposite).unwrap_or(&mix.parts);
        let all: usize = parts.iter().sum();
        let slices: f64 = parts.iter().zip(compute).map(|(part, of)| *part as f64 * of).sum();
        let rate = cards as f64 * 7.0 / (slices / all as f64);
        now += random.exponential() / rate;
        if now > END {
            return accepted / requested * 100.0;
        }
        while let Some(Reverse((at, card, place))) = ends.peek().copied() {
            // Positive floating-point numbers sort like their bits.
            if f64::from_bits(at) > now {
                break;
            }
            ends.pop();
            fleet.cards[card].remove(place);
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
        if let Some((card, place)) = fleet.place(profiles[wanted]) {
            accepted += counts;
            ends.push(Reverse(((now + life).to_bits(), card, place)));
        }
    }
}

struct Fleet<'a> {
    geometry: &'a Geometry,
    typing: Typing,
    /// The profile of each card. Mixed cards have none.
    kinds: Vec<usize>,
    cards: Vec<Instances>,
}

impl<'a> Fleet<'a> {
    fn new(geometry: &'a Geometry, typing: Typing, profiles: &[usize], cards: usize) -> Self {
        let kinds = profiles.iter().copied().cycle().take(cards).collect();
        Self { geometry, typing, kinds, cards: vec![Instances::default(); cards] }
    }

    fn place(&mut self, profile: usize) -> Option<(usize, Placement)> {
        let may = |at: &usize| match self.typing {
            Typing::EqualParts => self.kinds[*at] == profile,
            Typing::Retyped => self.kinds[*at] == profile || self.cards[*at].placed().is_empty(),
            Typing::Mixed => true,
        };
        let cards: Vec<usize> = (0..self.cards.len()).filter(may).collect();
        let among = cards.iter().map(|&at| &self.cards[at]);
        let (index, place) = self.geometry.choose(profile, among)?;
        let card = cards[index];
        self.kinds[card] = profile;
        self.cards[card].add(profile, place).then_some((card, place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retyped_and_mixed_cards_accept_more_than_static_ones() {
        let a100 = Card::A100;
        let geometry = Geometry::new(a100.slices(), a100.profiles()).expect("a valid table");
        for mix in &MIXES {
            let [equal, retyped, mixed] = TYPINGS.map(|typing| one(&geometry, mix, typing, 400, 0));
            assert!(retyped >= GAIN * equal, "{}: {retyped} beside {equal}", mix.name);
            assert!(mixed >= GAIN * equal, "{}: {mixed} beside {equal}", mix.name);
            assert!(mixed > retyped, "{}: {mixed} beside {retyped}", mix.name);
        }
    }
}
