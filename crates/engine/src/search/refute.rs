//! Early refutation: necessary conditions that show that the picks so far lead nowhere.
//!
//! Requests that just do not fit are what makes candidate search explode elsewhere: the whole
//! product is walked to find nothing. A matching of the open parts to the slots that are left
//! refutes them at the top of the tree. Everything here may only err towards "still possible",
//! except that with no part left open the answer is exact.

use super::plan::Plan;
use super::solve::Solver;

impl Solver<'_> {
    /// Whether no completion exists; `far` looks at all open parts together.
    pub(super) fn is_hopeless(&self, plan: &Plan, far: bool) -> bool {
        let open = self.picks.len()..self.order.len();
        let stuck =
            |depth: usize| !self.choices[depth].iter().any(|a| self.may_take(plan, depth, *a));
        let last = self.picks.len().checked_sub(1);
        (0..self.clauses).any(|clause| !self.can_cover(plan, clause))
            || last.is_some_and(|depth| !self.can_root_all(plan, depth, self.picks[depth]))
            || open.clone().any(stuck)
            || (far && open.len() > 1 && self.is_crowded(plan))
    }

    /// Whether a provider of the unsuffixed group has, or may have, one of these traits.
    fn can_cover(&self, plan: &Plan, clause: usize) -> bool {
        let covers = |actor: usize| self.covers[actor * self.clauses + clause];
        (0..self.order.len()).filter(|depth| !plan.parts[self.order[*depth]].suffixed).any(
            |depth| match self.picks.get(depth) {
                Some(actor) => covers(*actor),
                None => self.choices[depth].iter().any(|actor| covers(*actor)),
            },
        )
    }

    /// Whether an open part could be served by an actor beside all picks.
    fn may_take(&self, plan: &Plan, depth: usize, actor: usize) -> bool {
        self.has_room(plan, depth, actor) && self.can_root_all(plan, depth, actor)
    }

    /// [`Self::can_root`] for all sets that the part at a depth is in.
    fn can_root_all(&self, plan: &Plan, depth: usize, actor: usize) -> bool {
        let sets = &plan.parts[self.order[depth]].subtrees;
        self.relaxed.subtree || sets.iter().all(|set| self.can_root(plan, *set, depth, actor))
    }

    /// Whether one provider of a `same_subtree` set is, or may be, above all picked for it, with
    /// `actor` as the pick at `depth`.
    fn can_root(&self, plan: &Plan, set: usize, depth: usize, actor: usize) -> bool {
        let inside = |at: &usize| plan.parts[self.order[*at]].subtrees.contains(&set);
        let mut picked: Vec<usize> =
            (0..self.picks.len()).filter(inside).map(|at| self.picks[at]).collect();
        picked.push(actor);
        let tops = |top: usize| {
            let top = &self.host.actors[top];
            picked.iter().all(|actor| self.host.actors[*actor].is_under(top))
        };
        picked.iter().any(|actor| tops(*actor))
            || (self.picks.len()..self.order.len())
                .filter(|at| *at != depth && inside(at))
                .any(|at| self.choices[at].iter().any(|actor| tops(*actor)))
    }

    /// Whether the open parts cannot all be seated: by isolation, or by the room of some class.
    fn is_crowded(&self, plan: &Plan) -> bool {
        let open = || self.picks.len()..self.order.len();
        let part = |depth: usize| &plan.parts[self.order[depth]];
        if plan.isolate && !self.relaxed.isolate {
            let alone: Vec<usize> = open().filter(|depth| part(*depth).suffixed).collect();
            if !self.seats(plan, &alone, |actor| usize::from(self.holds[actor] == 0)) {
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
            let room = |actor: usize| self.rooms[actor * plan.classes.len() + class];
            seeking.len() > 1
                && (self.exceeds(&seeking, need, room)
                    || !self.seats(plan, &seeking, |actor| {
                        usize::try_from(room(actor) / smallest).unwrap_or(0)
                    }))
        })
    }

    /// Whether the parts ask for more than all that may serve them have.
    fn exceeds(
        &self,
        parts: &[usize],
        need: impl Fn(usize) -> Option<i64>,
        room: impl Fn(usize) -> i64,
    ) -> bool {
        let wanted = parts.iter().filter_map(|d| need(*d)).fold(0_i64, i64::saturating_add);
        let mut counted = vec![false; self.host.actors.len()];
        let mut there = 0_i64;
        for actor in parts.iter().flat_map(|depth| &self.choices[*depth]) {
            if !std::mem::replace(&mut counted[*actor], true) {
                there = there.saturating_add(room(*actor));
            }
        }
        wanted > there
    }

    /// Whether each part gets a seat at a provider that may serve it: a bipartite matching by
    /// augmenting paths, where a provider has as many seats as `seats` says.
    fn seats(&self, plan: &Plan, parts: &[usize], seats: impl Fn(usize) -> usize) -> bool {
        let mut guests: Vec<Vec<usize>> = vec![Vec::new(); self.host.actors.len()];
        let limits: Vec<usize> = (0..guests.len()).map(seats).collect();
        parts.iter().all(|depth| {
            let mut visited = vec![false; guests.len()];
            self.seat(plan, *depth, &limits, &mut guests, &mut visited)
        })
    }

    fn seat(
        &self,
        plan: &Plan,
        depth: usize,
        limits: &[usize],
        guests: &mut [Vec<usize>],
        visited: &mut [bool],
    ) -> bool {
        for &actor in &self.choices[depth] {
            if visited[actor] || limits[actor] == 0 || !self.may_take(plan, depth, actor) {
                continue;
            }
            visited[actor] = true;
            if guests[actor].len() < limits[actor] {
                guests[actor].push(depth);
                return true;
            }
            for at in 0..guests[actor].len() {
                if self.seat(plan, guests[actor][at], limits, guests, visited) {
                    guests[actor][at] = depth;
                    return true;
                }
            }
        }
        false
    }
}
