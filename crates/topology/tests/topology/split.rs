//! The amounts of guests without a topology, over the cells of their host.

use kilonova_topology::{CellRoom, Strategy, split};
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
fn several_cells_share_what_no_cell_has() {
    let cells = [cell(4, 100), cell(4, 300), cell(-1, 900)];
    let of = |amounts| split(&cells, amounts, 1, Strategy::Spread);
    assert_eq!(of([5, 1000]), Some(vec![[1, 0], [4, 100], [0, 900]]));
    assert_eq!(of([9, 1]), None);
    assert_eq!(of([1, 1301]), None);
    let narrow = [CellRoom { free: [100], most: [3] }, CellRoom { free: [100], most: [2] }];
    assert_eq!(split(&narrow, [5], 0, Strategy::Pack), Some(vec![[3], [2]]));
    assert_eq!(split(&narrow, [6], 0, Strategy::Pack), None);
    assert_eq!(split::<2>(&[], [0, 1], 0, Strategy::Pack), None);
}

proptest! {
    /// A split gives each amount exactly, never more of a cell than it has, and exists exactly if the cells together
    /// have enough.
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
            }
        }
    }
}
