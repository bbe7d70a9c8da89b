//! Reads the tables that NVIDIA's driver 580.159.04 printed for an H200, and compares the simulated card with it. The card was
//! not in MIG mode, so its vGPU types and its instances are not among them.

use std::os::unix::fs::PermissionsExt as _;

use kilonova_node::devices::{MigDriver as _, NvidiaSmi};
use kilonova_packing::mig::Card;

/// The program, with tables from the files beside it.
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
fn the_simulated_card_is_like_the_drivers() {
    let folder = tempfile::tempdir().expect("a directory is created");
    let write = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).expect("the file is written");
    };
    write("lgip", include_str!("h200-lgip.txt"));
    write("lgipp", include_str!("h200-lgipp.txt"));
    write("nvidia-smi", PROGRAM);
    let program = folder.path().join("nvidia-smi");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))
        .expect("the program becomes executable");
    let cards = NvidiaSmi::with_program(program).cards().expect("the tables are read");
    let [card] = &cards[..] else { panic!("one card: {cards:?}") };
    assert_eq!((&*card.address, card.slices), ("0000:00:06.0", Card::H200.slices()));
    assert!(card.types.is_empty() && card.instances.is_empty());
    let driver = card.profiles.iter().map(|one| {
        let places: Vec<_> = one.placements.iter().map(|place| (place.start, place.size)).collect();
        (one.name.clone(), one.most, places)
    });
    let simulated = Card::H200.profiles().into_iter().map(|one| {
        let places: Vec<_> = one.placements.iter().map(|place| (place.start, place.size)).collect();
        (one.name, one.most, places)
    });
    assert_eq!(driver.collect::<Vec<_>>(), simulated.collect::<Vec<_>>());
}
