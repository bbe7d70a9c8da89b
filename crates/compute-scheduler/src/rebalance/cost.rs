//! Moves that lower the cost of the hosts while no request waits for room.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kilonova_engine::Snapshot;
use kilonova_ids::ProviderId;
use kilonova_packing::Weights;

use super::{Board, Guest, MAX_MOVES, Move, Stop, after};
use crate::capacity::Searches;
use crate::constraints::Scope;
use crate::reason::NoHost;
use crate::rules::Packing;

/// The smallest reduction in cost, in devices, that justifies a move.
const MIN_COST_REDUCTION: f64 = 0.1;

/// Moves that lower the cost of the hosts.
#[derive(Debug, Clone, PartialEq)]
pub struct Lowered {
    /// The moves, in order. Each must end before the next begins.
    pub moves: Vec<Move>,
    /// The cost that they save, in devices.
    pub saved: f64,
}

/// At most `most` hosts, the costliest first.
pub fn costliest(world: &Snapshot, scope: Scope<'_>, most: usize) -> Vec<ProviderId> {
    let weights = weights(scope);
    let mut rated: Vec<(f64, ProviderId)> =
        world.roots().map(|root| (scope.packer.cost(world, root, weights), root)).collect();
    rated.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    rated.into_iter().take(most).map(|(_, root)| root).collect()
}

/// The configured weights of packing; the default weights if upstream's weighers are configured.
fn weights(scope: Scope<'_>) -> Weights {
    match scope.rules.packing {
        Packing::Cost(weights) => weights,
        Packing::Upstream => Weights::default(),
    }
}

/// Up to two moves that lower the cost of the hosts most, the best one first. `None` if no move is worthwhile, or if
/// `left` searches did not find one.
///
/// # Errors
/// [`NoHost`] for an invalid query.
pub fn lower_cost(
    world: &Snapshot,
    scope: Scope<'_>,
    guests: &[Guest],
    now: Timestamp,
    left: &mut Searches,
) -> Result<Option<Lowered>, NoHost> {
    let board = Board { scope, guests, now };
    let (mut world, mut moves, mut saved) = (world.clone(), Vec::<Move>::new(), 0.0);
    while moves.len() < MAX_MOVES {
        let best = match board.cheapest(&world, &moves, left) {
            Ok(best) => best,
            Err(Stop::Exhausted) => None,
            Err(Stop::Invalid(why)) => return Err(why),
        };
        let Some((one, less)) = best else { break };
        world = after(&world, guests, &one);
        saved += less;
        moves.push(one);
    }
    Ok((!moves.is_empty()).then_some(Lowered { moves, saved }))
}

impl Board<'_> {
    /// The move that lowers the cost most, and by how much.
    fn cheapest(
        &self,
        world: &Snapshot,
        before: &[Move],
        left: &mut Searches,
    ) -> Result<Option<(Move, f64)>, Stop> {
        let weights = weights(self.scope);
        let cost = |world: &Snapshot, root| self.scope.packer.cost(world, root, weights);
        let mut best: Option<(Move, f64)> = None;
        let mut tried: BTreeMap<ProviderId, Vec<&Guest>> = BTreeMap::new();
        for (at, guest) in self.guests.iter().enumerate() {
            let may_move = |one: &Move| self.guests[one.guest].can_move_with(guest);
            let known = tried.entry(guest.source).or_default();
            if !before.iter().all(may_move) || known.iter().any(|one| one.is_like(guest)) {
                continue;
            }
            known.push(guest);
            let places = match self.destinations(world, guest, left) {
                // The best move so far is the result.
                Err(Stop::Exhausted) if best.is_some() => break,
                places => places?,
            };
            for to in places {
                let (from, to_root) = (guest.source, to.root);
                let one = Move { guest: at, to };
                let then = after(world, self.guests, &one);
                let less = cost(world, from) + cost(world, to_root)
                    - cost(&then, from)
                    - cost(&then, to_root);
                if less >= MIN_COST_REDUCTION && best.as_ref().is_none_or(|(_, most)| less > *most)
                {
                    best = Some((one, less));
                }
            }
        }
        Ok(best)
    }
}
