//! The table of a survey.

use super::survey;
use crate::testing::Fixture;
use crate::{Discovery, Driver};

fn everything() -> Discovery {
    Discovery { drivers: vec![Driver::NvidiaGpu, Driver::IntelQat], ..Discovery::default() }
}

#[test]
fn a_host_without_accelerators_says_so() {
    let fixture = Fixture::new();
    let empty = survey(&fixture.sysfs(), &everything(), &[]).expect("the survey succeeds");
    assert_eq!(empty.table(), "This host has no device that can be offered to guests.\n");
    fixture.function("0000:00:01.0", ("1af4", "1041", "020000"), -1, "virtio-pci");
    fixture.function("0000:00:02.0", ("1234", "1111", "030000"), -1, "bochs-drm");
    assert_eq!(survey(&fixture.sysfs(), &everything(), &[]).expect("the survey succeeds"), empty);
}

#[test]
fn cards_types_offers_and_problems_are_shown() {
    let fixture = Fixture::new();
    let ids = ("10de", "2235", "030200");
    fixture.function("0000:25:00.0", ids, 1, "nvidia");
    for address in fixture.virtual_functions("0000:25:00.0", "0000:25:00.4", 2, ids, "nvidia") {
        let path = format!("devices/pci0000:25/{address}");
        fixture.vgpu_files(&path, 0, &[(558, "NVIDIA A40-2Q")]);
    }
    fixture.gpu("0000:84:00.0", &[("nvidia-35", "GRID M10-0B", 16)]);
    fixture.mtty(24);
    fixture.function("0000:3d:00.0", ("8086", "37c8", "0b4000"), 0, "c6xx");
    fixture.write("devices/pci0000:3d/0000:3d:00.0/device", "\n");
    let found = survey(&fixture.sysfs(), &everything(), &[]).expect("the survey succeeds");
    let text = found.table();
    for line in [
        "0000:25:00.0  GPU   10de:2235  nvidia  1     2    nvidia-558 (2 free)  -",
        "0000:84:00.0  GPU   10de:13bd  nvidia  1     0    nvidia-35 (16 free)  -",
        "mtty_mtty     MDEV  -          mtty    -1    0    mtty-1 (24 free)     -",
        "<host>_0000:84:00.0  PGPU   1      healthy  OWNER_CYBORG CUSTOM_NVIDIA_13BD",
        "0000:3d:00.0: bus/pci/devices/0000:3d:00.0/device has unexpected content \"\"",
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line}\n{text}");
    }
}
