//! Tests with a program that prints tables in the form of NVIDIA's MIG user guide, and keeps its instances in a file.
//! They show that the tables are read, not that a driver prints them.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::*;

const CARD: &str = "0000:41:00.0";

/// The program. Its instances are the lines of a file: profile name, profile number, instance number, place.
const PROGRAM_TEXT: &str = r#"#!/bin/sh
here=$(dirname "$0")
touch "$here/instances"
case "$*" in
--query-gpu=*)
    echo "00000000:41:00.0, Enabled"
    echo "00000000:C1:00.0, Disabled"
    echo "00000000:C2:00.0, [N/A]" ;;
"mig -lgipp -i 0000:41:00.0")
    echo "GPU  0 Profile ID 19 Placements: {0,1,2,3,4,5,6}:1"
    echo "GPU  0 Profile ID 20 Placements: {0,1,2,3,4,5,6}:1"
    echo "GPU  0 Profile ID  9 Placements: {0,4}:4"
    echo "GPU  0 Profile ID  0 Placement : {0}:8" ;;
"mig -lgip -i 0000:41:00.0")
    echo "+-----------------------------------------------------------------------------+"
    echo "| GPU instance profiles:                                                      |"
    echo "| GPU   Name             ID    Instances   Memory     P2P    SM    DEC   ENC  |"
    echo "|                              Free/Total   GiB              CE    JPEG  OFA  |"
    echo "|=============================================================================|"
    echo "|   0  MIG 1g.5gb        19     7/7        4.75       No     14     0     0   |"
    echo "|                                                             1     0     0   |"
    echo "+-----------------------------------------------------------------------------+"
    echo "|   0  MIG 1g.5gb+me     20     1/1        4.75       No     14     1     0   |"
    echo "|                                                             1     1     1   |"
    echo "+-----------------------------------------------------------------------------+"
    echo "|   0  MIG 3g.20gb        9     2/2        19.62      No     42     2     0   |"
    echo "|                                                             3     0     0   |"
    echo "+-----------------------------------------------------------------------------+" ;;
"mig -lgi -i 0000:41:00.0")
    if [ ! -s "$here/instances" ]; then
        echo "No GPU instances found: Not Found"
        exit 6
    fi
    echo "| GPU   Name               Profile  Instance   Placement  |"
    echo "|                            ID       ID       Start:Size |"
    echo "|=========================================================|"
    while read -r name profile number place; do
        echo "|   0  MIG $name            $profile        $number          $place     |"
    done < "$here/instances" ;;
"mig -cgi 9:4 -i 0000:41:00.0")
    echo "MIG 3g.20gb 9 2 4:4" | cut -d' ' -f2- >> "$here/instances"
    echo "Successfully created GPU instance ID  2 on GPU  0 using profile MIG 3g.20gb (ID  9)" ;;
"mig -cgi 19:4 -i 0000:41:00.0")
    echo "Unable to create a GPU instance on GPU  0 using profile 19: Insufficient Resources"
    exit 4 ;;
"mig -dgi -gi 2 -i 0000:41:00.0")
    : > "$here/instances" ;;
"vgpu -s -v -i 0000:41:00.0")
    echo "GPU 00000000:41:00.0"
    echo "    vGPU Type ID              : 0x1cd"
    echo "        Name                  : GRID A100-4C"
    echo "        GPU Instance Profile ID : N/A"
    echo "    vGPU Type ID              : 0x1da"
    echo "        Name                  : GRID A100-1-5C"
    echo "        GPU Instance Profile ID : 19"
    echo "    vGPU Type ID              : 0x1dc"
    echo "        Name                  : GRID A100-3-20C"
    echo "        GPU Instance Profile ID : 9" ;;
*)
    echo "unknown: $*" >&2
    exit 2 ;;
esac
"#;

fn driver(folder: &Path, text: &str) -> NvidiaSmi {
    let program = folder.join("nvidia-smi");
    std::fs::write(&program, text).expect("the program is written");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&program, mode).expect("the program is executable");
    NvidiaSmi::with_program(program)
}

fn instance(profile: &str, start: u8, size: u8) -> GpuInstance {
    let place = MigPlacement { start, size };
    GpuInstance { card: CARD.into(), profile: profile.into(), place }
}

#[test]
fn tables_are_read_and_instances_are_created_and_destroyed_once() {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let driver = driver(folder.path(), PROGRAM_TEXT);
    let cards = driver.cards().expect("the tables are read");
    let [card] = &cards[..] else { panic!("one card: {cards:?}") };
    assert_eq!((&*card.address, card.slices, &card.instances), (CARD, 8, &Vec::new()));
    let profiles: Vec<(&str, u8, usize)> = card
        .profiles
        .iter()
        .map(|one| (one.name.as_str(), one.most, one.placements.len()))
        .collect();
    assert_eq!(profiles, [("1g.5gb", 7, 7), ("1g.5gb+me", 1, 7), ("3g.20gb", 2, 2)]);
    let types: Vec<(&str, &str)> =
        card.types.iter().map(|one| (one.id.as_str(), one.profile.as_str())).collect();
    assert_eq!(types, [("nvidia-474", "1g.5gb"), ("nvidia-476", "3g.20gb")]);

    let large = instance("3g.20gb", 4, 4);
    for _ in 0..2 {
        driver.create(&large).expect("it is created, or exists");
        let there = driver.cards().expect("the tables are read").remove(0).instances;
        assert_eq!(there, std::slice::from_ref(&large));
    }
    let error = driver.create(&instance("1g.5gb", 4, 1)).expect_err("its slices are occupied");
    assert!(error.to_string().contains("Insufficient Resources"), "{error}");
    let error = driver.create(&instance("2g.10gb", 0, 2)).expect_err("there is no such profile");
    assert!(error.to_string().contains("no such profile"), "{error}");
    driver.destroy(&instance("1g.5gb", 4, 1)).expect("the instance is left alone");
    for _ in 0..2 {
        driver.destroy(&large).expect("it is destroyed, or gone");
    }
    assert_eq!(driver.cards().expect("the tables are read")[0].instances, []);
}

/// A card with many vGPU types has a longer list of them than a pipe holds.
#[test]
fn a_long_list_of_types_is_read() {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let types = "    echo \"    vGPU Type ID              : 0x1cd\"";
    let more = "    i=0; while [ $i -lt 3000 ]; do
        echo \"        Number                : $i of a list that is longer than a pipe\"; i=$((i + 1))
    done
    i=0; while [ $i -lt 3000 ]; do echo \"a complaint that nobody has to read: $i\" >&2; i=$((i + 1)); done\n";
    let text = PROGRAM_TEXT.replace(types, &format!("{more}{types}"));
    assert_ne!(text, PROGRAM_TEXT);
    let cards = driver(folder.path(), &text).cards().expect("the tables are read");
    assert_eq!(cards[0].types.len(), 2);
}

#[test]
fn a_card_whose_tables_have_another_form_is_unreadable() {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    for (from, to) in
        [("{0,4}:4", "{0,x}:4"), ("19     7/7 ", "19     many"), ("|   0  MIG 1g", "|   0  Mig 1g")]
    {
        let text = PROGRAM_TEXT.replace(from, to).replace(
            "|   0  MIG 3g.20gb        9     2/2",
            if from.starts_with('|') { "| " } else { "|   0  MIG 3g.20gb        9     2/2" },
        );
        assert_ne!(text, PROGRAM_TEXT);
        let cards = driver(folder.path(), &text).cards().expect("the list is read");
        let why = cards[0].unreadable.clone().unwrap_or_default();
        assert!(!why.is_empty(), "{to}");
        assert_eq!(cards, [MigCard::unreadable(CARD, why)], "{to}");
    }
}

/// A lost card does not hide the others.
#[test]
fn an_unreadable_card_is_told_apart_from_a_readable_one() {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let listed = "    echo \"00000000:C1:00.0, Disabled\"";
    for (line, reason) in [
        ("00000000:C1:00.0, Enabled", "unknown: mig -lgipp -i 0000:c1:00.0"),
        ("00000000:C1:00.0, [GPU is lost]", "[GPU is lost]"),
    ] {
        let text = PROGRAM_TEXT.replace(listed, &format!("    echo \"{line}\""));
        let cards = driver(folder.path(), &text).cards().expect("the list is read");
        let [card, lost] = &cards[..] else { panic!("two cards: {cards:?}") };
        assert_eq!((card.unreadable.as_ref(), card.types.len()), (None, 2));
        let why = lost.unreadable.clone().unwrap_or_default();
        assert!(why.contains(reason), "{why}");
        assert_eq!(*lost, MigCard::unreadable("0000:c1:00.0", why));
    }
}

#[test]
fn a_list_of_cards_that_cannot_be_read_is_an_error() {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let text = PROGRAM_TEXT.replace("00000000:41:00.0, Enabled", "41, Enabled");
    assert!(driver(folder.path(), &text).cards().is_err());
    let missing = NvidiaSmi::with_program(folder.path().join("absent"));
    let error = missing.cards().expect_err("there is no program").to_string();
    assert!(error.contains("cannot read the GPU instances") && error.contains("absent"), "{error}");
}

#[test]
fn a_matrix_of_links_is_read() {
    let matrix = "\t\u{1b}[4mGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\u{1b}[0m\n\
        GPU0\t X \tNV18\tSYS\tPIX\t0-47\t0\t\tN/A\n\
        GPU1\tNV18\t X \tNODE\tSYS\t0-47\t0\t\tN/A\n\
        GPU2\tSYS\tNODE\t X \tSYS\t48-95\t1\t\tN/A\n\
        NIC0\tPIX\tSYS\tSYS\t X \n\n\
        Legend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n";
    let pair = |one: &str, other: &str| (one.to_owned(), other.to_owned());
    assert_eq!(linked(matrix), Ok(vec![pair("GPU0", "GPU1"), pair("GPU1", "GPU0")]));
    for wrong in ["", "No devices were found\n", "\tGPU0\tGPU1\nGPU0\t X \n"] {
        assert!(linked(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn links_have_the_addresses_of_the_cards() {
    let folder = tempfile::tempdir().expect("a directory is created");
    let path = folder.path().join("nvidia-smi");
    let text = "#!/bin/sh\ncase \"$*\" in\n--query-gpu=index*) echo '0, 00000000:1B:00.0'; \
        echo '1, 00000000:43:00.0' ;;\n'topo -m') printf '\\tGPU0\\tGPU1\\tCPU Affinity\\n'; \
        printf 'GPU0\\t X \\tNV12\\t0\\n'; printf 'GPU1\\tNV12\\t X \\t0\\n' ;;\nesac\n";
    std::fs::write(&path, text).expect("the program is written");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&path, mode).expect("the program becomes executable");
    let links = crate::Links::parse(&["driver".to_owned()]).expect("the option is valid");
    let links = links.resolved(&NvidiaSmi::with_program(path)).expect("the driver answers");
    let listed = ["0000:1b:00.0,0000:43:00.0".to_owned()];
    let listed = crate::Links::parse(&listed).expect("the option is valid");
    assert_eq!(format!("{links:?}").replace("true", "false"), format!("{listed:?}"));
    let missing = NvidiaSmi::with_program(folder.path().join("none"));
    let links = crate::Links::parse(&["driver".to_owned()]).expect("the option is valid");
    assert!(links.resolved(&missing).is_err());
}
