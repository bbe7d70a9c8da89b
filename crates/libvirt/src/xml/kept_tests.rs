//! The properties that redefinitions keep of a domain.

use std::path::Path;

use kilonova_node_api::{Firmware, Machine};

use super::*;
use crate::config::LibvirtConfig;
use crate::files::layout;
use crate::xml::tests::{changed, definition, host, volumes};
use crate::xml::{NumaPlacement, domain};

const CODE: &str = "/usr/share/OVMF/OVMF_CODE_4M.fd";

fn of_type(machine_type: Option<&str>) -> HostProfile {
    host(LibvirtConfig {
        machine_type: machine_type.map(str::to_owned),
        ..LibvirtConfig::default()
    })
}

fn xml(host: &HostProfile, definition: &Definition, kept: &Kept) -> String {
    let layout = layout(definition, volumes());
    domain(host, definition, &layout, &NumaPlacement::default(), None, kept)
}

/// The XML of the next definition of a domain on a host where all files exist.
fn again(host: &HostProfile, old: &str, next: &Definition) -> String {
    let layout = layout(next, volumes());
    xml(host, next, &Kept::of(host, old, next, &layout, |_| true))
}

fn has_type(xml: &str, machine_type: &str) -> bool {
    xml.contains(&format!("machine='{machine_type}'>hvm"))
}

/// A domain as an earlier version left it: without a record, and with the type as libvirt resolved it.
fn earlier(xml: &str, from: &str, to: &str) -> String {
    let lines = xml.lines().filter(|line| !line.contains("<hardware:is"));
    let text: Vec<&str> = lines.collect();
    text.join("\n").replace(&format!("machine='{from}'>hvm"), &format!("machine='{to}'>hvm"))
}

fn uefi(secure_boot: Option<SecureBoot>) -> Definition {
    changed(|config| {
        config.machine =
            Machine { firmware: Some(Firmware::Uefi), secure_boot, ..Machine::default() };
    })
}

/// A domain with the firmware that libvirt chose.
fn with_firmware(xml: &str) -> String {
    let chosen = format!(
        "<loader readonly='yes' secure='yes' type='pflash'>{CODE}</loader>\n\
         <nvram template='/usr/share/OVMF/OVMF_VARS_4M.fd'>/nvram/a_VARS.fd</nvram>\n"
    );
    let xml = xml.replace("    <loader secure='yes'/>\n", "");
    xml.replace("    <smbios", &format!("{chosen}    <smbios"))
}

#[test]
fn a_guest_keeps_its_machine_type_when_the_host_names_another() {
    let (q35, pc) = (of_type(None), of_type(Some("pc")));
    let guest = definition();
    let first = xml(&q35, &guest, &Kept::default());
    assert!(has_type(&first, "q35"), "{first}");
    assert!(has_type(&xml(&pc, &guest, &Kept::default()), "pc"), "a new guest has the host's");
    let next = again(&pc, &first, &guest);
    assert_eq!(next, first);
    assert_eq!(again(&pc, &next, &guest), first);
    // libvirt writes the version that it resolves to.
    let resolved = first.replace("machine='q35'>hvm", "machine='pc-q35-8.2'>hvm");
    assert_eq!(again(&pc, &resolved, &guest), first);
    for (is, wanted) in [("pc-q35-8.2", "q35"), ("pc-i440fx-8.2", "pc"), ("microvm", "microvm")] {
        let next = again(&pc, &earlier(&first, "q35", is), &guest);
        assert!(has_type(&next, wanted), "{is}: {next}");
    }
    let versioned = of_type(Some("pc-q35-7.2"));
    let next = again(&versioned, &earlier(&first, "q35", "pc-q35-7.2"), &guest);
    assert!(has_type(&next, "pc-q35-7.2"), "{next}");
}

#[test]
fn a_guest_from_another_host_keeps_the_machine_type_that_it_had_there() {
    let q35 = of_type(Some("pc-q35-8.2"));
    let guest = definition();
    for (had, wanted) in [("pc", "pc"), ("pc-q35-6.2", "pc-q35-6.2")] {
        let arrived = xml(&q35, &guest, &Kept::of_new(&q35, Some(had), true));
        assert!(has_type(&arrived, wanted), "{arrived}");
        assert_eq!(again(&q35, &arrived, &guest), arrived);
        let named = changed(|config| config.machine.machine_type = Some("pc-q35-9.0".into()));
        let arrived = xml(&q35, &named, &Kept::of_new(&q35, Some(had), true));
        assert!(has_type(&arrived, "pc-q35-9.0"), "the image names it: {arrived}");
    }
    let newer = HostProfile {
        machine_types: ["pc-q35-8.2".to_owned(), "q35".to_owned()].into(),
        ..of_type(Some("pc-q35-8.2"))
    };
    let arrived = xml(&newer, &guest, &Kept::of_new(&newer, Some("pc-q35-6.2"), true));
    assert!(has_type(&arrived, "pc-q35-8.2"), "this emulator has no 6.2: {arrived}");
    assert_eq!(Kept::of_new(&newer, Some("microvm"), false), Kept::default());
}

#[test]
fn an_image_or_a_rebuild_chooses_the_machine_type_anew() {
    let pc = of_type(Some("pc"));
    let first = xml(&of_type(None), &definition(), &Kept::default());
    let rebuilt = changed(|config| config.boot.rebuilt = definition().done);
    assert!(has_type(&again(&pc, &first, &rebuilt), "pc"));
    let named = changed(|config| config.machine.machine_type = Some("pc-q35-9.0".into()));
    let next = again(&pc, &first, &named);
    assert!(has_type(&next, "pc-q35-9.0") && !next.contains("<hardware:is"), "{next}");
}

#[test]
fn a_new_guest_with_an_ide_disk_has_a_machine_with_that_bus() {
    use kilonova_node_api::Bus;

    let with = |disk_bus, cdrom_bus| {
        changed(|config| config.machine = Machine { disk_bus, cdrom_bus, ..Machine::default() })
    };
    let kept = Kept { machine_type: Some("q35".into()), ..Kept::default() };
    for guest in [with(Some(Bus::Ide), None), with(None, Some(Bus::Ide))] {
        let first = xml(&of_type(None), &guest, &Kept::default());
        assert!(has_type(&first, "pc") && first.contains("bus='ide'"), "{first}");
        assert!(has_type(&xml(&of_type(Some("q35")), &guest, &Kept::default()), "q35"));
        assert!(has_type(&xml(&of_type(None), &guest, &kept), "q35"), "it has run with q35");
    }
    let sata = with(Some(Bus::Sata), Some(Bus::Sata));
    assert!(has_type(&xml(&of_type(None), &sata, &Kept::default()), "q35"));
}

#[test]
fn buses_of_disks_that_a_guest_lacks_do_not_choose_its_machine_type() {
    use kilonova_disks::Volumes;
    use kilonova_node_api::Bus;

    let host = of_type(None);
    let no_cdrom = Volumes { config: None, ..volumes() };
    let of_volumes = Volumes { root: None, ..volumes() };
    for (files, disk_bus, cdrom_bus) in
        [(no_cdrom, None, Some(Bus::Ide)), (of_volumes, Some(Bus::Ide), None)]
    {
        let machine = Machine { disk_bus, cdrom_bus, ..Machine::default() };
        let guest = changed(|config| config.machine = machine);
        let layout = layout(&guest, files);
        let numa = NumaPlacement::default();
        let first = domain(&host, &guest, &layout, &numa, None, &Kept::default());
        assert!(has_type(&first, "q35") && !first.contains("bus='ide'"), "{first}");
        let old = earlier(&first, "q35", "pc-q35-8.2");
        let kept = Kept::of(&host, &old, &guest, &layout, |_| true);
        assert_eq!(domain(&host, &guest, &layout, &numa, None, &kept), first);
    }
}

#[test]
fn a_machine_type_that_the_emulator_no_longer_has_is_replaced_by_one_of_its_family() {
    use crate::xml::machine_types;

    let capabilities = "<capabilities><host><cpu><arch>x86_64</arch></cpu></host>\
         <guest><os_type>hvm</os_type><arch name='i686'><machine>isapc</machine></arch></guest>\
         <guest><os_type>hvm</os_type><arch name='x86_64'><wordsize>64</wordsize>\
         <machine maxCpus='255' canonical='pc-i440fx-10.0'>pc</machine>\
         <machine maxCpus='288' canonical='pc-q35-10.0'>q35</machine>\
         <machine maxCpus='288'>pc-q35-8.2</machine></arch></guest></capabilities>";
    let types = machine_types(capabilities, "x86_64");
    let names: Vec<&str> = types.iter().map(String::as_str).collect();
    assert_eq!(names, ["pc", "pc-i440fx-10.0", "pc-q35-10.0", "pc-q35-8.2", "q35"]);
    let guest = definition();
    let first = xml(&of_type(Some("pc-q35-2.4")), &guest, &Kept::default());
    for (option, wanted) in [(None, "q35"), (Some("pc-q35-8.2"), "pc-q35-8.2"), (Some("pc"), "q35")]
    {
        let upgraded = HostProfile { machine_types: types.clone(), ..of_type(option) };
        let next = again(&upgraded, &first, &guest);
        assert!(has_type(&next, wanted), "{option:?}: {next}");
        assert_eq!(again(&upgraded, &next, &guest), next);
    }
    let known = HostProfile { machine_types: types, ..of_type(None) };
    let kept = xml(&of_type(Some("pc-q35-8.2")), &guest, &Kept::default());
    assert!(has_type(&again(&known, &kept, &guest), "pc-q35-8.2"));
}

#[test]
fn a_guest_keeps_its_firmware_while_its_files_exist() {
    let host = of_type(None);
    for guest in [uefi(None), uefi(Some(SecureBoot::Required))] {
        let first = xml(&host, &guest, &Kept::default());
        assert_eq!(again(&host, &first, &guest), first, "libvirt has chosen none yet");
        let secure = guest.config.machine.secure_boot.is_some();
        let chosen = with_firmware(&first);
        let next = again(&host, &chosen, &guest);
        assert!(next.contains(CODE) && next.contains(">/nvram/a_VARS.fd</nvram>"), "{next}");
        assert!(!next.contains("firmware='efi'") && !next.contains("<firmware>"), "{next}");
        assert_eq!(next.contains("<smm state='on'/>"), secure, "{next}");
        assert_eq!(next.matches("<loader").count(), 1, "{next}");
        assert_eq!(again(&host, &next, &guest), next);
        for missing in [CODE, "/usr/share/OVMF/OVMF_VARS_4M.fd"] {
            let layout = layout(&guest, volumes());
            let exists = |file: &Path| file != Path::new(missing);
            let kept = Kept::of(&host, &chosen, &guest, &layout, exists);
            assert_eq!(xml(&host, &guest, &kept), first, "{missing}");
        }
    }
    let chosen = with_firmware(&xml(&host, &uefi(None), &Kept::default()));
    let next = again(&host, &chosen, &uefi(Some(SecureBoot::Required)));
    assert!(next.contains("name='secure-boot'") && !next.contains(CODE), "{next}");
}

#[test]
fn optional_secure_boot_is_given_to_new_guests_of_hosts_with_it() {
    let (able, guest) = (of_type(None), uefi(Some(SecureBoot::Optional)));
    let is_secure = |xml: &str| xml.contains("name='secure-boot'") && xml.contains("<smm");
    let first = xml(&able, &guest, &Kept::default());
    assert!(is_secure(&first), "{first}");
    assert_eq!(again(&able, &first, &guest), first);
    let unable = HostProfile { secure_boot: false, ..of_type(None) };
    let plain = xml(&unable, &guest, &Kept::default());
    assert!(!is_secure(&plain) && plain.contains("firmware='efi'"), "{plain}");
    assert_eq!(again(&able, &plain, &guest), plain, "an existing guest stays without");
    assert!(!is_secure(&again(&able, &earlier(&first, "q35", "pc-q35-8.2"), &guest)));
    assert!(!is_secure(&xml(&of_type(Some("pc")), &guest, &Kept::default())));
    let of_fetched = Kept::of_new(&able, None, true);
    let fetched = xml(&able, &guest, &of_fetched);
    assert!(!is_secure(&fetched), "disks from another host: {fetched}");
    assert_eq!(again(&able, &fetched, &guest), fetched);
    assert!(is_secure(&xml(&able, &uefi(Some(SecureBoot::Required)), &of_fetched)));
}

#[test]
fn secure_boot_in_domain_capabilities() {
    use crate::xml::has_secure_boot;

    let with = |values: &str| {
        format!(
            "<domainCapabilities><os supported='yes'><loader supported='yes'>\
             <enum name='readonly'><value>yes</value></enum><enum name='secure'>{values}</enum>\
             </loader></os></domainCapabilities>"
        )
    };
    assert!(has_secure_boot(&with("<value>yes</value><value>no</value>")));
    assert!(!has_secure_boot(&with("<value>no</value>")));
    assert!(!has_secure_boot("<domainCapabilities/>"));
}
