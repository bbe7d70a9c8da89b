//! The amounts of a guest without a topology, divided over the cells of its host.
//!
//! Such a guest runs on all shared CPUs of its host, and its memory is where the kernel puts it. The amounts say only what
//! is left of each cell for others: they are on one cell if one has room for all of them, and otherwise on as few as
//! the order gives.

use crate::Strategy;

/// The amounts that one cell can still give of each resource, in the order of the caller's resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellRoom<const N: usize> {
    /// Free units; negative if more is in use than offered.
    pub free: [i64; N],
    /// The most that one guest may have there.
    pub most: [i64; N],
}

impl<const N: usize> CellRoom<N> {
    fn gives(&self, at: usize) -> i64 {
        self.free[at].min(self.most[at]).max(0)
    }
}

/// Divides amounts over cells: for each cell its part of each amount. `by` is the position of the resource that orders the
/// cells: with [`Strategy::Spread`] those with most of it left come first, with [`Strategy::Pack`] those with least.
/// Among equal cells the first is preferred. `None` if the cells together have too little of a resource.
pub fn split<const N: usize>(
    cells: &[CellRoom<N>],
    amounts: [i64; N],
    by: usize,
    strategy: Strategy,
) -> Option<Vec<[i64; N]>> {
    let mut order: Vec<usize> = (0..cells.len()).collect();
    let left = |at: &usize| cells[*at].free.get(by).copied().unwrap_or_default();
    match strategy {
        Strategy::Spread => order.sort_by_key(|at| std::cmp::Reverse(left(at))),
        Strategy::Pack => order.sort_by_key(left),
    }
    let mut parts = vec![[0; N]; cells.len()];
    let holds_all = |at: &usize| (0..N).all(|one| cells[*at].gives(one) >= amounts[one]);
    if let Some(at) = order.iter().copied().find(holds_all) {
        parts[at] = amounts;
        return Some(parts);
    }
    for one in 0..N {
        let mut missing = amounts[one];
        for at in order.iter().copied() {
            let part = cells[at].gives(one).min(missing);
            parts[at][one] = part;
            missing -= part;
        }
        if missing > 0 {
            return None;
        }
    }
    Some(parts)
}
