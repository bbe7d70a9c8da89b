//! Early refutation: if a necessary condition is not met, the current picks cannot be completed.
//!
//! If a request barely fails to fit, a naive search tries every combination and finds nothing. A
//! matching of the open parts (those without a pick) to the remaining capacity refutes it near the
//! root of the search tree. A check here may only err towards "still possible"; once no part is open,
//! the answer is exact.

use super::plan::Plan;
use super::solve::Solver;

impl Solver<'_> {
    /// True if the current picks cannot be completed. With `far`, also examines all open parts together.
    pub(super) fn is_refuted(&self, plan: &Plan, far: bool) -> bool {
        let open = self.picks.len()..self.order.len();
        let stuck =
            |depth: usize| !self.choices[depth].iter().any(|a| self.may_take(plan, depth, *a));
        let last = self.picks.len().checked_sub(1);
        (0..self.clauses).any(|clause| !self.can_cover(plan, clause))
            || last.is_some_and(|depth| !self.can_root_all(plan, depth, self.picks[depth]))
            || open.clone().any(stuck)
            || (0..self.alike.len()).any(|set| !self.can_be_alike(plan, set, far))
            || (far && open.len() > 1 && self.is_overfull(plan))
    }

    /// True if a provider that is, or may still be, picked for the unsuffixed group has one of the traits of the
    /// clause.
    fn can_cover(&self, plan: &Plan, clause: usize) -> bool {
        let covers = |supplier: usize| self.covers[supplier * self.clauses + clause];
        (0..self.order.len()).filter(|depth| !plan.parts[self.order[*depth]].suffixed).any(
            |depth| match self.picks.get(depth) {
                Some(supplier) => covers(*supplier),
                None => self.choices[depth].iter().any(|supplier| covers(*supplier)),
            },
        )
    }

    /// True if a provider could serve an open part in addition to all picks.
    fn may_take(&self, plan: &Plan, depth: usize, supplier: usize) -> bool {
        self.has_room(plan, depth, supplier) && self.can_root_all(plan, depth, supplier)
    }

    /// True if [`Self::can_root`] is true for all `same_subtree` sets that contain the part at `depth`.
    fn can_root_all(&self, plan: &Plan, depth: usize, supplier: usize) -> bool {
        let sets = &plan.parts[self.order[depth]].subtrees;
        self.relaxed.subtree || sets.iter().all(|set| self.can_root(plan, *set, depth, supplier))
    }

    /// True if one provider of a `same_subtree` set is, or may be, above all providers picked for
    /// it, with `supplier` as the pick at `depth`.
    fn can_root(&self, plan: &Plan, set: usize, depth: usize, supplier: usize) -> bool {
        let inside = |at: &usize| plan.parts[self.order[*at]].subtrees.contains(&set);
        let mut picked: Vec<usize> =
            (0..self.picks.len()).filter(inside).map(|at| self.picks[at]).collect();
        picked.push(supplier);
        let tops = |top: usize| {
            let top = &self.anchor.suppliers[top];
            picked.iter().all(|supplier| self.anchor.suppliers[*supplier].is_under(top))
        };
        picked.iter().any(|supplier| tops(*supplier))
            || (self.picks.len()..self.order.len())
                .filter(|at| *at != depth && inside(at))
                .any(|at| self.choices[at].iter().any(|supplier| tops(*supplier)))
    }

    /// True if the open parts cannot all be served together, because of isolation or because a
    /// class lacks room.
    fn is_overfull(&self, plan: &Plan) -> bool {
        let open = || self.picks.len()..self.order.len();
        let part = |depth: usize| &plan.parts[self.order[depth]];
        if plan.isolate && !self.relaxed.isolate {
            let alone: Vec<usize> = open().filter(|depth| part(*depth).suffixed).collect();
            if !self.seats(plan, &alone, |supplier| usize::from(self.holds[supplier] == 0)) {
                return true;
            }
        }
        if self.relaxed.room {
            return false;
        }
        (0..plan.classes.len()).any(|class| {
            let need = |depth: usize| {
                part(depth).needs.iter().find(|(c, _)| *c == class).map(|(_, amount)| *amount)
            };
            let seeking: Vec<usize> = open().filter(|depth| need(*depth).is_some()).collect();
            let smallest = seeking.iter().filter_map(|depth| need(*depth)).min().unwrap_or(1);
            let room = |supplier: usize| self.rooms[supplier * plan.classes.len() + class];
            seeking.len() > 1
                && (self.exceeds(&seeking, need, room)
                    || !self.seats(plan, &seeking, |supplier| {
                        usize::try_from(room(supplier) / smallest).unwrap_or(0)
                    }))
        })
    }

    /// True if the parts request more than the total room of all providers that may serve them.
    fn exceeds(
        &self,
        parts: &[usize],
        need: impl Fn(usize) -> Option<i64>,
        room: impl Fn(usize) -> i64,
    ) -> bool {
        let wanted = parts.iter().filter_map(|d| need(*d)).fold(0_i64, i64::saturating_add);
        let mut counted = vec![false; self.anchor.suppliers.len()];
        let mut there = 0_i64;
        for supplier in parts.iter().flat_map(|depth| &self.choices[*depth]) {
            if !std::mem::replace(&mut counted[*supplier], true) {
                there = there.saturating_add(room(*supplier));
            }
        }
        wanted > there
    }

    /// True if each part can be matched to a provider: a bipartite matching by augmenting paths, in
    /// which a provider takes at most as many parts as `seats` returns for it.
    fn seats(&self, plan: &Plan, parts: &[usize], seats: impl Fn(usize) -> usize) -> bool {
        let mut matched: Vec<Vec<usize>> = vec![Vec::new(); self.anchor.suppliers.len()];
        let limits: Vec<usize> = (0..matched.len()).map(seats).collect();
        parts.iter().all(|depth| {
            let mut visited = vec![false; matched.len()];
            self.seat(plan, *depth, &limits, &mut matched, &mut visited)
        })
    }

    fn seat(
        &self,
        plan: &Plan,
        depth: usize,
        limits: &[usize],
        matched: &mut [Vec<usize>],
        visited: &mut [bool],
    ) -> bool {
        for &supplier in &self.choices[depth] {
            if visited[supplier] || limits[supplier] == 0 || !self.may_take(plan, depth, supplier) {
                continue;
            }
            visited[supplier] = true;
            if matched[supplier].len() < limits[supplier] {
                matched[supplier].push(depth);
                return true;
            }
            for at in 0..matched[supplier].len() {
                if self.seat(plan, matched[supplier][at], limits, matched, visited) {
                    matched[supplier][at] = depth;
                    return true;
                }
            }
        }
        false
    }
}
