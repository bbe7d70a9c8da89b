//! Image properties by example.

use kilonova_node_api::Topology;
use kilonova_wire::refusal::Kind;

use super::*;

fn flavor(vcpus: i64, extra_specs: &[(&str, &str)]) -> FlavorOf {
    let mut flavor = crate::resolve::empty_flavor();
    flavor.vcpus = vcpus;
    flavor.extra_specs = map(extra_specs);
    flavor
}

fn map(pairs: &[(&str, &str)]) -> Properties {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn machine(properties: &[(&str, &str)], flavor: &FlavorOf) -> Machine {
    Reader::new(&map(properties), flavor).machine()
}

#[test]
fn what_an_image_says_is_heard() {
    let given = [
        ("hw_machine_type", "q35"),
        ("hw_firmware_type", "uefi"),
        ("os_secure_boot", "optional"),
        ("hw_disk_bus", "scsi"),
        ("hw_scsi_model", "virtio-scsi"),
        ("hw_cdrom_bus", "sata"),
        ("hw_vif_model", "VirtualE1000e"),
        ("hw_video_model", "none"),
        ("hw_watchdog_action", "reset"),
        ("hw_qemu_guest_agent", "Yes"),
        ("os_type", "Linux"),
        ("kernel_id", "22222222222242228222222222222222"),
        ("os_command_line", "console=ttyS0"),
        ("img_config_drive", "mandatory"),
        ("anything", "else"),
    ];
    let expected = Machine {
        machine_type: Some("q35".into()),
        firmware: Some(Firmware::Uefi),
        secure_boot: Some(SecureBoot::Optional),
        disk_bus: Some(Bus::Scsi),
        scsi_model: Some("virtio-scsi".into()),
        cdrom_bus: Some(Bus::Sata),
        vif_model: Some("e1000e".into()),
        video_model: Some("none".into()),
        watchdog: Some("reset".into()),
        guest_agent: true,
        os_type: Some("linux".into()),
        kernel: parse_uuid_like("22222222-2222-4222-8222-222222222222"),
        command_line: Some("console=ttyS0".into()),
        config_drive: true,
        rng: true,
        ..Machine::default()
    };
    assert_eq!(machine(&given, &flavor(1, &[])), expected);
    assert!(check(&map(&given), &flavor(1, &[])).is_ok());
}

#[test]
fn the_image_goes_before_the_flavor() {
    let flavor = flavor(
        1,
        &[
            ("hw:watchdog_action", "reset"),
            ("hw:boot_menu", "true"),
            ("hide_hypervisor_id", "true"),
            ("os:secure_boot", "required"),
            ("hw_rng:allowed", "false"),
        ],
    );
    let plain = machine(&[], &flavor);
    assert_eq!(plain.watchdog.as_deref(), Some("reset"));
    assert!(plain.boot_menu && plain.hide_hypervisor && !plain.rng);
    assert_eq!(plain.secure_boot, Some(SecureBoot::Required));
    let text = [("hw_watchdog_action", "disabled"), ("hw_boot_menu", "no")];
    let text = machine(&text, &flavor);
    assert_eq!(text.watchdog, None);
    assert!(!text.boot_menu);
}

#[test]
fn wrong_values_are_refused_in_novas_words() {
    for (key, value, words) in [
        ("hw_disk_bus", "foo", "Invalid image metadata. Error: Field value foo is invalid"),
        (
            "hw_disk_bus",
            "xen",
            "Invalid image metadata. Error: Requested hardware 'xen' is not supported by the 'kvm' \
             virt driver",
        ),
        ("hw_firmware_type", "efi", "Invalid image metadata. Error: Field value efi is invalid"),
        ("hw_rescue_device", "tape", "Invalid image metadata. Error: Field value tape is invalid"),
        ("img_config_drive", "yes", "Invalid image metadata. Error: Field value yes is invalid"),
        (
            "hw_cpu_cores",
            "two",
            "Invalid image metadata. Error: invalid literal for int() with base 10: 'two'",
        ),
        (
            "hw_video_ram",
            "64",
            "The requested amount of video memory 64 is higher than the maximum allowed by flavor 0.",
        ),
    ] {
        let fault = check(&map(&[(key, value)]), &flavor(1, &[])).expect_err(key);
        assert_eq!((fault.kind, &*fault.message), (Kind::BadRequest, words));
    }
}

#[test]
fn a_new_server_without_an_ide_bus_has_no_ide_disks() {
    let given = |machine_type, bus, config_drive| {
        let properties = map(&[("hw_machine_type", machine_type), (bus, "ide")]);
        assert!(check(&properties, &flavor(1, &[])).is_ok(), "existing servers keep it");
        check_new(&properties, &flavor(1, &[]), config_drive).map_err(|fault| fault.message)
    };
    for bus in ["hw_disk_bus", "hw_cdrom_bus"] {
        for machine_type in ["q35", "pc-q35-8.2"] {
            let why = format!(
                "Invalid image metadata. Error: hw_machine_type={machine_type} has no IDE bus for {bus}"
            );
            assert_eq!(given(machine_type, bus, true).expect_err(bus).to_string(), why);
        }
        assert!(given("pc-i440fx-8.2", bus, true).is_ok());
        assert!(check_new(&map(&[(bus, "ide")]), &flavor(1, &[]), true).is_ok());
    }
    assert!(given("q35", "hw_cdrom_bus", false).is_ok(), "it may have no CD-ROM");
    assert!(given("q35", "hw_disk_bus", false).is_err());
    let mandatory =
        [("hw_machine_type", "q35"), ("hw_cdrom_bus", "ide"), ("img_config_drive", "mandatory")];
    assert!(check_new(&map(&mandatory), &flavor(1, &[]), false).is_err());
}

#[test]
fn flavor_and_image_of_a_new_server_agree_about_secure_boot() {
    let given = |of_image, of_flavor| {
        let (image, flavor) =
            (map(&[("os_secure_boot", of_image)]), flavor(1, &[("os:secure_boot", of_flavor)]));
        assert!(check(&image, &flavor).is_ok(), "existing servers keep it");
        check_new(&image, &flavor, false)
    };
    assert!(given("required", "required").is_ok() && given("disabled", "disabled").is_ok());
    for (of_image, of_flavor) in
        [("required", "disabled"), ("optional", "required"), ("disabled", "required")]
    {
        let fault = given(of_image, of_flavor).expect_err(of_image);
        let words = format!(
            "os:secure_boot extra spec explicitly set to {of_flavor}, conflicting with the image, which \
             has os_secure_boot explicitly set to {of_image}."
        );
        assert!(fault.message.contains(&words), "{}", fault.message);
    }
}

#[test]
fn processors_are_arranged_as_is_wished() {
    let arranged = |vcpus, properties: &[(&str, &str)], specs: &[(&str, &str)]| {
        topology::choose(&map(properties), &flavor(vcpus, specs)).map(|found| {
            found.map(|Topology { sockets, cores, threads }| [sockets, cores, threads])
        })
    };
    assert_eq!(arranged(8, &[], &[]), Ok(None));
    assert_eq!(arranged(8, &[("hw_cpu_sockets", "1")], &[]), Ok(Some([1, 8, 1])));
    assert_eq!(arranged(8, &[("hw_cpu_threads", "2")], &[]), Ok(Some([4, 1, 2])));
    assert_eq!(arranged(8, &[], &[("hw:cpu_max_sockets", "2")]), Ok(Some([2, 4, 1])));
    assert_eq!(arranged(7, &[("hw_cpu_sockets", "2")], &[]), Ok(Some([7, 1, 1])), "not met");
    assert_eq!(
        arranged(8, &[("hw_cpu_sockets", "4")], &[("hw:cpu_max_sockets", "2")]),
        Err("Image vCPU topology 4:0:0 exceeds permitted 2:65536:65536".into())
    );
    let one = [("hw:cpu_max_sockets", "1"), ("hw:cpu_max_cores", "1"), ("hw:cpu_max_threads", "1")];
    assert_eq!(
        arranged(2, &[], &one),
        Err("Requested vCPU limits 1:1:1 are impossible to satisfy for vcpus count 2".into())
    );
}
