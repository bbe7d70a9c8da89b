//! The division of the amounts of guests without a topology between the cells of their host.

use kilonova_topology::{CellRoom, Strategy, share, split};
use proptest::prelude::*;

fn cell(vcpus: i64, memory: i64) -> CellRoom<2> {
    CellRoom { free: [vcpus, memory], most: [1000, 1000] }
}

#[test]
fn one_cell_takes_all_where_it_can() {
    let cells = [cell(4, 100), cell(4, 300), cell(1, 900)];
    let of = |amounts, strategy| split(&cells, amounts, 1, strategy);
    assert_eq!(of([2, 50], Strategy::Spread), Some(vec![[0, 0], [2, 50], [0, 0]]));
    assert_eq!(of([2, 50], Strategy::Pack), Some(vec![[2, 50], [0, 0], [0, 0]]));
    assert_eq!(of([1, 50], Strategy::Spread), Some(vec![[0, 0], [0, 0], [1, 50]]));
    assert_eq!(of([0, 900], Strategy::Pack), Some(vec![[0, 0], [0, 0], [0, 900]]));
}

#[test]
fn a_spread_split_takes_the_same_share_of_each_cell() {
    let cells = [cell(4, 100), cell(4, 300), cell(-1, 900)];
    let of = |amounts| split(&cells, amounts, 1, Strategy::Spread);
    assert_eq!(of([5, 1000]), Some(vec![[2, 76], [3, 231], [0, 693]]));
    assert_eq!(of([9, 1]), None);
    assert_eq!(of([1, 1301]), None);
    // Each cell keeps CPUs and memory for others, and an unneeded cell keeps everything.
    let equal = [cell(8, 100), cell(8, 100), cell(8, 100)];
    let split = split(&equal, [4, 150], 1, Strategy::Spread);
    assert_eq!(split, Some(vec![[2, 75], [2, 75], [0, 0]]));
}

#[test]
fn a_packed_split_fills_one_cell_after_the_other() {
    let cells = [cell(4, 100), cell(4, 300), cell(8, 200)];
    let of = |amounts| split(&cells, amounts, 1, Strategy::Pack);
    assert_eq!(of([6, 301]), Some(vec![[4, 100], [0, 1], [2, 200]]));
    let narrow = [CellRoom { free: [100], most: [3] }, CellRoom { free: [100], most: [2] }];
    assert_eq!(split(&narrow, [5], 0, Strategy::Pack), Some(vec![[3], [2]]));
    assert_eq!(split(&narrow, [6], 0, Strategy::Pack), None);
    assert_eq!(split::<2>(&[], [0, 1], 0, Strategy::Pack), None);
}

#[test]
fn an_amount_is_divided_exactly_in_proportion() {
    for (amount, totals, parts) in [
        (512, &[1000, 1000][..], &[256, 256][..]),
        (512, &[1000, 3000, 0], &[128, 384, 0]),
        (7, &[3, 3, 3], &[3, 2, 2]),
        (10, &[1, 100], &[1, 9]),
        (99, &[1, 7], &[1, 7]),
        (5, &[0, 0], &[0, 0]),
        (-5, &[4], &[0]),
        (i64::MAX, &[i64::MAX, i64::MAX], &[i64::MAX / 2 + 1, i64::MAX / 2]),
    ] {
        assert_eq!(share(amount, totals), parts, "{amount} over {totals:?}");
    }
}

proptest! {
    /// A split covers each amount exactly, never takes more from a cell than it has, and exists if and only if the
    /// cells together have enough. It uses several cells only if no cell has room for all amounts. A spread split takes
    /// the same share of each resource from each cell that it uses, to within one unit.
    #[test]
    fn a_split_is_exact_and_found_if_there_is_one(
        cells in prop::collection::vec(
            (prop::array::uniform3(-5_i64..20), prop::array::uniform3(1_i64..25)),
            0..5,
        ),
        amounts in prop::array::uniform3(0_i64..30),
        pack in any::<bool>(),
    ) {
        let cells: Vec<CellRoom<3>> =
            cells.into_iter().map(|(free, most)| CellRoom { free, most }).collect();
        let strategy = if pack { Strategy::Pack } else { Strategy::Spread };
        let gives = |cell: &CellRoom<3>, one: usize| cell.free[one].min(cell.most[one]).max(0);
        let sum = |one: usize| cells.iter().map(|cell| gives(cell, one)).sum::<i64>();
        let fits = (0..3).all(|one| sum(one) >= amounts[one]) && (!cells.is_empty() || amounts == [0; 3]);
        match split(&cells, amounts, 1, strategy) {
            None => prop_assert!(!fits),
            Some(parts) => {
                prop_assert!(fits);
                for one in 0..3 {
                    prop_assert_eq!(parts.iter().map(|part| part[one]).sum::<i64>(), amounts[one]);
                }
                for (cell, part) in cells.iter().zip(&parts) {
                    prop_assert!((0..3).all(|one| (0..=gives(cell, one)).contains(&part[one])));
                }
                let used: Vec<usize> =
                    (0..cells.len()).filter(|at| parts[*at] != [0; 3]).collect();
                let holds = |cell: &CellRoom<3>| (0..3).all(|one| gives(cell, one) >= amounts[one]);
                prop_assert!(used.len() < 2 || !cells.iter().any(holds));
                if used.len() > 1 && !pack {
                    for (this, that) in used.iter().zip(&used[1..]) {
                        for one in 0..3 {
                            let gives = [this, that].map(|at| gives(&cells[*at], one));
                            let [this, that] = [this, that].map(|at| parts[*at][one]);
                            let apart = (this * gives[1] - that * gives[0]).abs();
                            prop_assert!(apart <= gives[0] + gives[1], "{:?}", parts);
                        }
                    }
                }
            }
        }
    }
}
