//! Divides the amounts of a guest without a topology between the cells of its host.
//!
//! Such a guest runs on all shared CPUs of its host, and its memory is where the kernel puts it. The split only
//! determines what remains of each cell for other guests: it uses one cell if one has room for all amounts, and
//! otherwise the shortest sufficient prefix of the order. A spread split takes the same share of each resource from all
//! of these cells, so that none of them retains CPUs without memory, or memory without CPUs.

use crate::Strategy;

/// The amounts of each resource that one cell can still give, in the order of the caller's resources.
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

/// Divides amounts between cells, and returns each cell's part of each amount. `by` is the index of the resource that
/// orders the cells: [`Strategy::Spread`] starts with the cell that has the most of it left, [`Strategy::Pack`] with
/// the cell that has the least. Equal cells keep their order. Several cells are used only if no cell has room for all
/// amounts: then the fewest, in this order, that together have room. [`Strategy::Spread`] takes the same share of each
/// cell's room, [`Strategy::Pack`] fills one cell after the other. `None` if the cells together have too little of a
/// resource.
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
    let hold_all = |cells_used: &&[usize]| {
        (0..N).all(|one| {
            let all = cells_used.iter().map(|at| i128::from(cells[*at].gives(one)));
            all.sum::<i128>() >= i128::from(amounts[one])
        })
    };
    let fewest = (0..=order.len()).map(|number| &order[..number]).find(hold_all)?;
    for one in 0..N {
        let gives: Vec<i64> = fewest.iter().map(|at| cells[*at].gives(one)).collect();
        let of_cells = match strategy {
            Strategy::Spread => share(amounts[one], &gives),
            Strategy::Pack => fill(amounts[one], &gives),
        };
        for (at, part) in fewest.iter().zip(of_cells) {
            parts[*at][one] = part;
        }
    }
    Some(parts)
}

/// Divides an amount in proportion to the totals, exactly and with no part larger than its total. An amount above their
/// sum counts as the sum.
pub fn share(amount: i64, totals: &[i64]) -> Vec<i64> {
    let all: i128 = totals.iter().map(|total| i128::from(*total)).sum();
    if all <= 0 {
        return vec![0; totals.len()];
    }
    let amount = i128::from(amount.max(0)).min(all);
    let part = |total: &i64| i64::try_from(amount * i128::from(*total) / all).unwrap_or(*total);
    let mut parts: Vec<i64> = totals.iter().map(part).collect();
    let mut left = amount - parts.iter().map(|part| i128::from(*part)).sum::<i128>();
    for (part, total) in parts.iter_mut().zip(totals) {
        if left > 0 && *part < *total {
            *part += 1;
            left -= 1;
        }
    }
    parts
}

/// Divides an amount by filling each total in turn until nothing is left.
fn fill(amount: i64, totals: &[i64]) -> Vec<i64> {
    let mut left = amount;
    let part = |total: &i64| {
        let part = left.min(*total);
        left -= part;
        part
    };
    totals.iter().map(part).collect()
}
