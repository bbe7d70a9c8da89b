//! Reads the tables that NVIDIA's driver 580.159.04 printed for an H100 and an H200, and compares the simulated cards
//! with them. The cards were not in MIG mode, so the tables do not include their vGPU types and instances.

use std::os::unix::fs::PermissionsExt as _;

use kilonova_node::devices::{MigDriver as _, NvidiaSmi};
use kilonova_packing::mig::Card;

/// The program, with tables from the files next to it.
const PROGRAM: &str = r#"#!/bin/sh
here=$(dirname "$0")
case "$*" in
--query-gpu=*) echo "00000000:00:06.0, Enabled" ;;
"mig -lgip -i 0000:00:06.0") cat "$here/lgip" ;;
"mig -lgipp -i 0000:00:06.0") cat "$here/lgipp" ;;
"mig -lgi -i 0000:00:06.0") echo "No MIG-enabled devices found." ;;
"vgpu -s -v -i 0000:00:06.0") echo "No supported devices in vGPU mode" ;;
*) exit 2 ;;
esac
"#;

#[test]
fn simulated_cards_are_like_the_drivers() {
    // Both cards have the same table of placements.
    is_like_the_drivers(Card::A100Large, include_str!("h100-lgip.txt"));
    is_like_the_drivers(Card::H200, include_str!("h200-lgip.txt"));
}

fn is_like_the_drivers(known: Card, profiles: &str) {
    let folder = tempfile::tempdir().expect("a directory is created");
    let write = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).expect("the file is written");
    };
    write("lgip", profiles);
    write("lgipp", include_str!("hopper-lgipp.txt"));
    write("nvidia-smi", PROGRAM);
    let program = folder.path().join("nvidia-smi");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))
        .expect("the program becomes executable");
    let cards = NvidiaSmi::with_program(program).cards().expect("the tables are read");
    let [card] = &cards[..] else { panic!("one card: {cards:?}") };
    assert_eq!((&*card.address, card.slices), ("0000:00:06.0", known.slices()));
    assert!(card.types.is_empty() && card.instances.is_empty());
    let driver = card.profiles.iter().map(|one| {
        let places: Vec<_> = one.placements.iter().map(|place| (place.start, place.size)).collect();
        (one.name.clone(), one.most, places)
    });
    let simulated = known.profiles().into_iter().map(|one| {
        let places: Vec<_> = one.placements.iter().map(|place| (place.start, place.size)).collect();
        (one.name, one.most, places)
    });
    assert_eq!(driver.collect::<Vec<_>>(), simulated.collect::<Vec<_>>());
}
