//! Virtual functions of a vendor's VFIO driver.

use super::{Vgpu, clear_type, set_type, vgpu_state};
use crate::Error;
use crate::testing::Fixture;

const VF: &str = "0000:25:00.4";

fn vgpu(vgpu_type: &str) -> Vgpu {
    Vgpu { address: VF.into(), vgpu_type: vgpu_type.into() }
}

fn reason(result: Result<(), Error>) -> String {
    result.expect_err("the change is refused").to_string()
}

#[test]
fn the_files_of_the_driver_are_read() {
    let fixture = Fixture::new();
    fixture.vgpu_function(VF, 0, &[(557, "NVIDIA A40-1Q"), (558, "NVIDIA A40-2Q")]);
    let state = vgpu_state(&fixture.sysfs(), VF)
        .expect("the state is readable")
        .expect("the function has a vGPU driver");
    assert_eq!(state.current, None);
    let all: Vec<_> = state.creatable.iter().map(|one| (&*one.id, &*one.name)).collect();
    assert_eq!(all, [("nvidia-557", "NVIDIA A40-1Q"), ("nvidia-558", "NVIDIA A40-2Q")]);
    assert_eq!(vgpu_state(&fixture.sysfs(), "0000:26:00.0").expect("the state is readable"), None);
}

#[test]
fn a_type_is_set_once_and_cleared_only_if_it_matches() {
    let fixture = Fixture::new();
    fixture.vgpu_function(VF, 0, &[(558, "NVIDIA A40-2Q")]);
    let (sysfs, file) = (fixture.sysfs(), format!("bus/pci/devices/{VF}/nvidia/current_vgpu_type"));
    set_type(&sysfs, &vgpu("nvidia-558")).expect("the type is set");
    assert_eq!(fixture.content(&file).trim(), "558");
    set_type(&sysfs, &vgpu("nvidia-558")).expect("setting the same type succeeds");
    assert!(
        reason(set_type(&sysfs, &vgpu("nvidia-557"))).contains("it already has type nvidia-558")
    );
    clear_type(&sysfs, &vgpu("nvidia-557")).expect("clearing another type does nothing");
    assert_eq!(fixture.content(&file).trim(), "558");
    clear_type(&sysfs, &vgpu("nvidia-558")).expect("the type is cleared");
    assert_eq!(fixture.content(&file).trim(), "0");
    clear_type(&sysfs, &vgpu("nvidia-558")).expect("clearing twice succeeds");
}

#[test]
fn unavailable_types_are_refused_with_the_available_ones() {
    let fixture = Fixture::new();
    fixture.vgpu_function(VF, 0, &[(557, "NVIDIA A40-1Q")]);
    let sysfs = fixture.sysfs();
    let text = reason(set_type(&sysfs, &vgpu("nvidia-558")));
    assert!(text.contains("can be set now are: nvidia-557"), "{text}");
    fixture.vgpu_function(VF, 0, &[]);
    assert!(reason(set_type(&sysfs, &vgpu("nvidia-558"))).ends_with("now are: none"));
    let gone = Vgpu { address: "0000:26:00.0".into(), ..vgpu("nvidia-558") };
    assert!(reason(set_type(&sysfs, &gone)).contains("does not support vGPUs"));
    clear_type(&sysfs, &gone).expect("a missing function has no type");
}

#[test]
fn a_half_written_file_is_an_error_and_not_a_type() {
    let fixture = Fixture::new();
    fixture.vgpu_function(VF, 0, &[(558, "NVIDIA A40-2Q")]);
    fixture.write(&format!("bus/pci/devices/{VF}/nvidia/current_vgpu_type"), "");
    let text = reason(set_type(&fixture.sysfs(), &vgpu("nvidia-558")));
    assert!(text.contains("current_vgpu_type"), "{text}");
}
