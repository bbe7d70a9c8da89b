//! Every mask and profile compared with trying all starts, and the pitfalls of the geometry.

use kilonova_packing::mig::{Card, Geometry, Instances, MAX_SLICES, Placement, Profile};

fn geometry(card: Card) -> Geometry {
    Geometry::new(card.slices(), card.profiles()).expect("the table is valid")
}

/// Adds instances by name, each at the first legal start. Returns the starts.
fn fill(geometry: &Geometry, card: &mut Instances, names: &[&str]) -> Vec<Option<u8>> {
    let add = |name: &&str| {
        let profile = geometry.find(name).expect(name);
        let place = geometry.place(profile, card)?;
        assert!(card.add(profile, place), "{name} at {place:?}");
        Some(place.start)
    };
    names.iter().map(add).collect()
}

/// The slices, one by one.
fn slices(place: Placement) -> impl Iterator<Item = u8> {
    place.start..place.start + place.size
}

#[test]
fn the_table_agrees_with_trying_all_starts_for_every_mask_and_profile() {
    for card in Card::ALL {
        let geometry = geometry(card);
        for (index, profile) in geometry.profiles().iter().enumerate() {
            for mask in 0..=u8::MAX {
                let legal = |start: &u8| {
                    let at = profile.placements.iter().find(|one| one.start == *start);
                    at.is_some_and(|one| slices(*one).all(|slice| mask & (1 << slice) == 0))
                };
                let start = (0..MAX_SLICES).find(legal);
                let found = geometry.first(index, mask).map(|place| place.start);
                assert_eq!(found, start, "{card:?} {} {mask:08b}", profile.name);
            }
        }
    }
}

#[test]
fn seven_small_instances_leave_a_slice_that_fits_no_instance() {
    let geometry = geometry(Card::A100);
    let mut card = Instances::default();
    let starts = fill(&geometry, &mut card, &["1g.5gb"; 8]);
    let expected: Vec<Option<u8>> = (0..7).map(Some).chain([None]).collect();
    assert_eq!(starts, expected);
    assert_eq!(card.occupied(), 0b0111_1111);
    for profile in 0..geometry.profiles().len() {
        assert_eq!(geometry.first(profile, card.occupied()), None, "{profile}");
    }
}

#[test]
fn a_large_instance_that_is_first_leaves_room_for_three_small_ones() {
    let geometry = geometry(Card::A100Large);
    let mut card = Instances::default();
    let starts =
        fill(&geometry, &mut card, &["3g.40gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb"]);
    assert_eq!(starts, [Some(0), Some(4), Some(5), Some(6), None]);
}

#[test]
fn two_instances_of_three_leave_a_compute_slice_unused() {
    let geometry = geometry(Card::H200);
    let mut card = Instances::default();
    assert_eq!(fill(&geometry, &mut card, &["3g.71gb", "3g.71gb"]), [Some(0), Some(4)]);
    let compute: u8 =
        card.placed().iter().map(|(profile, _)| geometry.profiles()[*profile].compute).sum();
    assert_eq!((compute, card.occupied()), (6, u8::MAX));
    assert_eq!(fill(&geometry, &mut card, &["1g.18gb"]), [None]);
}

#[test]
fn a_media_engine_is_given_once_and_double_memory_four_times() {
    for (card, once) in [(Card::B200, "1g.23gb+me"), (Card::A30, "2g.12gb+me")] {
        let mut instances = Instances::default();
        assert_eq!(fill(&geometry(card), &mut instances, &[once, once]), [Some(0), None]);
    }
    let mut card = Instances::default();
    let starts = fill(&geometry(Card::B200), &mut card, &["1g.45gb"; 5]);
    assert_eq!(starts, [Some(0), Some(2), Some(4), Some(6), None]);
}

#[test]
fn four_compute_slices_are_at_the_start_alone() {
    let geometry = geometry(Card::A100);
    let mut card = Instances::default();
    assert_eq!(fill(&geometry, &mut card, &["1g.5gb", "4g.20gb"]), [Some(0), None]);
    assert!(card.remove(Placement { start: 0, size: 1 }));
    assert!(!card.remove(Placement { start: 0, size: 1 }));
    assert_eq!(fill(&geometry, &mut card, &["4g.20gb", "3g.20gb"]), [Some(0), Some(4)]);
    assert_eq!(
        fill(&geometry, &mut Instances::default(), &["3g.20gb", "4g.20gb"]),
        [Some(0), None]
    );
}

/// The memory slices imply the compute slices: no card with legal instances has too many.
#[test]
fn no_legal_card_has_more_compute_slices_than_exist() {
    fn most(geometry: &Geometry, mask: u8, from: usize) -> u8 {
        let all = geometry.profiles().iter().enumerate().skip(from);
        let more = all.flat_map(|(index, profile)| {
            let free = profile.placements.iter().filter(move |one| one.mask() & mask == 0);
            free.map(move |one| profile.compute + most(geometry, mask | one.mask(), index))
        });
        more.max().unwrap_or(0)
    }
    assert_eq!(most(&geometry(Card::A30), 0, 0), 4);
    assert_eq!(most(&geometry(Card::A100), 0, 0), 7);
}

#[test]
fn the_fullest_card_is_chosen_and_the_first_of_equal_ones() {
    let geometry = geometry(Card::A100);
    let two = geometry.find("2g.10gb").expect("the profile exists");
    let cards = |all: &[&[&str]]| -> Vec<Instances> {
        let card = |names: &&[&str]| {
            let mut card = Instances::default();
            assert!(!fill(&geometry, &mut card, names).contains(&None), "{names:?}");
            card
        };
        all.iter().map(card).collect()
    };
    let chosen = |all: &[&[&str]]| {
        let found = geometry.choose(two, &cards(all));
        found.map(|(card, place)| (card, place.start))
    };
    assert_eq!(chosen(&[&[], &["1g.5gb"], &["3g.20gb"], &["3g.20gb"]]), Some((2, 4)));
    // The fullest card has slices 6 and 7 free, where no such instance may start.
    assert_eq!(chosen(&[&["4g.20gb", "2g.10gb"], &["1g.5gb"], &[]]), Some((1, 2)));
    assert_eq!(chosen(&[&["2g.10gb"; 3], &["7g.40gb"]]), None);
    assert_eq!(chosen(&[]), None);
}

/// A driver's answer that differs from every table is used unchanged.
#[test]
fn the_placements_of_a_driver_go_before_a_table() {
    let odd = |start: u8, size: u8| Profile {
        name: format!("{size}"),
        compute: size,
        most: 2,
        placements: vec![Placement { start, size }, Placement { start: 0, size: 1 }],
    };
    let geometry = Geometry::new(6, vec![odd(3, 3)]).expect("the placements are valid");
    assert_eq!(geometry.slices(), 6);
    let mut card = Instances::default();
    assert_eq!(fill(&geometry, &mut card, &["3", "3", "3"]), [Some(0), Some(3), None]);
    assert_eq!(card.occupied(), 0b11_1001);
    assert_eq!(geometry.first(1, 0), None);
}

#[test]
fn placements_beyond_a_card_are_refused() {
    let profile = |start: u8, size: u8| Profile {
        name: "3g.20gb".to_owned(),
        compute: 3,
        most: 2,
        placements: vec![Placement { start, size }],
    };
    let why = |slices: u8, profiles: Vec<Profile>| {
        Geometry::new(slices, profiles).expect_err("the placements are invalid").to_string()
    };
    assert!(
        why(8, vec![profile(6, 4)]).ends_with("4 slices from slice 6 are not on a card with 8")
    );
    assert!(why(8, vec![profile(0, 0)]).contains("0 slices"));
    assert!(why(8, vec![profile(255, 255)]).contains("255 slices"));
    assert!(why(9, vec![profile(0, 4)]).contains("9 memory slices"));
    assert!(why(8, vec![profile(0, 4), profile(4, 4)]).ends_with("listed twice"));
    assert_eq!(Placement { start: 9, size: 1 }.mask(), 0);
    assert_eq!(Placement { start: 6, size: 200 }.mask(), 0b1100_0000);
}
