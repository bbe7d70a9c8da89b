//! Devices found by Cyborg's drivers.

use kilonova_node_api::DeviceKind;

use super::{NicOptions, allowed, driven, look, reasons, short};
use crate::testing::Fixture;
use crate::{Discovery, Driver};

fn traits(fixture: &Fixture, discovery: &Discovery) -> Vec<String> {
    let found = look(fixture, discovery);
    assert_eq!(reasons(&found), Vec::<String>::new());
    found.devices[0].deployables[0].traits.clone()
}

#[test]
fn whole_gpus_and_never_their_virtual_functions() {
    let fixture = Fixture::new();
    fixture.function("0000:3b:00.0", ("10de", "1eb8", "030200"), 0, "nvidia");
    fixture.function("0000:25:00.0", ("10de", "2235", "030200"), 0, "nvidia");
    let ids = ("10de", "2235", "030200");
    fixture.virtual_functions("0000:25:00.0", "0000:25:00.4", 2, ids, "nvidia");
    fixture.function("0000:3b:00.1", ("10de", "10f8", "040300"), 0, "snd_hda_intel");
    let found = look(&fixture, &driven(Driver::NvidiaGpu));
    assert_eq!(
        short(&found.devices),
        ["0000:25:00.0 PGPU [0000:25:00.0]", "0000:3b:00.0 PGPU [0000:3b:00.0]"]
    );
    assert_eq!(found.devices[1].deployables[0].traits, ["OWNER_CYBORG", "CUSTOM_NVIDIA_1EB8"]);
}

#[test]
fn a_gpu_that_is_cut_or_named_by_an_option_is_not_found_again() {
    let fixture = Fixture::new();
    fixture.function("0000:3b:00.0", ("10de", "1eb8", "030200"), 0, "nvidia");
    fixture.gpu("0000:84:00.0", &[("nvidia-35", "GRID M10-0B", 16)]);
    fixture.mdev("devices/pci0000:84/0000:84:00.0", "nvidia-35");
    let mut discovery = allowed(&[r#"{"product_id": "1eb8", "resource_class": "T4"}"#]);
    discovery.drivers = vec![Driver::NvidiaGpu];
    let found = look(&fixture, &discovery);
    assert_eq!(short(&found.devices), ["0000:3b:00.0 CUSTOM_T4 [0000:3b:00.0]"]);
    assert_eq!(found.problems, []);
}

#[test]
fn quickassist_is_a_provider_for_each_virtual_function() {
    let fixture = Fixture::new();
    fixture.function("0000:3d:00.0", ("8086", "37c8", "0b4000"), 0, "c6xx");
    let ids = ("8086", "37c9", "0b4000");
    fixture.virtual_functions("0000:3d:00.0", "0000:3d:01.0", 2, ids, "vfio-pci");
    fixture.function("0000:3f:00.0", ("8086", "37c8", "0b4000"), 0, "c6xx");
    let found = look(&fixture, &driven(Driver::IntelQat));
    assert_eq!(
        short(&found.devices),
        [
            "0000:3d:01.0 CUSTOM_QAT [0000:3d:01.0]",
            "0000:3d:01.1 CUSTOM_QAT [0000:3d:01.1]",
            "0000:3f:00.0 CUSTOM_QAT [0000:3f:00.0]",
        ]
    );
    assert_eq!((found.devices.len(), found.devices[0].kind), (2, DeviceKind::Qat));
}

#[test]
fn network_functions_know_their_network_and_function() {
    let fixture = Fixture::new();
    let card = fixture.function("0000:05:00.0", ("8086", "158b", "020000"), 0, "i40e");
    fixture.write(&format!("{card}/net/eth2/address"), "52:54:00:00:00:01\n");
    let ids = ("8086", "154c", "020000");
    fixture.virtual_functions("0000:05:00.0", "0000:05:02.0", 1, ids, "iavf");
    let nics = NicOptions::new("physnet1:eth2|eth3,physnet2:eth4", "GTPv1:eth2")
        .expect("the options are valid");
    let discovery = Discovery { nics, ..driven(Driver::IntelNic) };
    assert_eq!(
        traits(&fixture, &discovery),
        ["OWNER_CYBORG", "CUSTOM_VF", "CUSTOM_GTPV1", "CUSTOM_PHYSNET1"]
    );
    let found = look(&fixture, &discovery);
    assert_eq!(short(&found.devices), ["0000:05:02.0 CUSTOM_NIC [0000:05:02.0]"]);
    assert_eq!(found.devices[0].deployables[0].facts["physical_network"], "physnet1");
    for wrong in ["eth2", ":eth2", "net1:", "net1:eth2,net2:eth2"] {
        assert!(NicOptions::new(wrong, "").is_err(), "{wrong}");
    }
}

#[test]
fn intel_fpgas_show_region_and_function_in_the_layout_of_the_kernel() {
    let fixture = Fixture::new();
    let card = fixture.function("0000:5e:00.0", ("8086", "0b30", "120000"), 0, "dfl-pci");
    let region = format!("{card}/fpga_region/region0");
    fixture.write(
        &format!("{region}/dfl-fme.0/dfl-fme-region.2/fpga_region/region2/compat_id"),
        "5bcd682f5017431fad2b9a8b34d5d5c5\n",
    );
    fixture.write(&format!("{region}/dfl-port.0/afu_id"), "D8424DC4-A4A3-C413-F89E-433683F9040B\n");
    let discovery = driven(Driver::IntelFpga);
    assert_eq!(
        traits(&fixture, &discovery),
        [
            "OWNER_CYBORG",
            "CUSTOM_FPGA_INTEL",
            "CUSTOM_FPGA_INTEL_PAC_N3000",
            "CUSTOM_FPGA_REGION_INTEL_5BCD682F5017431FAD2B9A8B34D5D5C5",
            "CUSTOM_FPGA_FUNCTION_ID_INTEL_D8424DC4A4A3C413F89E433683F9040B",
        ]
    );
    let found = look(&fixture, &discovery);
    assert_eq!(short(&found.devices), ["0000:5e:00.0 FPGA [0000:5e:00.0]"]);
    let facts = &found.devices[0].deployables[0].facts;
    assert_eq!(facts["function_id"], "d8424dc4a4a3c413f89e433683f9040b");
}

#[test]
fn intel_fpgas_give_their_virtual_functions_in_the_layout_of_the_older_driver() {
    let fixture = Fixture::new();
    let card = fixture.function("0000:5e:00.0", ("8086", "09c4", "120000"), 0, "intel-fpga-pci");
    fixture.write(
        &format!("{card}/fpga/intel-fpga-dev.0/intel-fpga-fme.0/pr/interface_id"),
        "ce48969398f05f33946d560708be108a\n",
    );
    let ids = ("8086", "09c5", "120000");
    let all = fixture.virtual_functions("0000:5e:00.0", "0000:5e:00.1", 3, ids, "vfio-pci");
    for (address, id) in all.iter().zip(["aa", "aa", "bb"]) {
        let port = "fpga/intel-fpga-dev.1/intel-fpga-port.1/afu_id";
        fixture.write(&format!("devices/pci0000:5e/{address}/{port}"), &format!("{id}\n"));
    }
    let found = look(&fixture, &driven(Driver::IntelFpga));
    assert_eq!(
        short(&found.devices),
        ["0000:5e:00.0 FPGA [0000:5e:00.1 0000:5e:00.2]", "0000:5e:00.0_FPGA FPGA [0000:5e:00.3]",]
    );
    for part in &found.devices[0].deployables {
        assert_eq!(part.facts["region_id"], "ce48969398f05f33946d560708be108a");
    }
}

#[test]
fn a_xilinx_card_offers_its_user_function_only() {
    let fixture = Fixture::new();
    fixture.function("0000:3b:00.0", ("10ee", "5000", "120000"), 0, "xclmgmt");
    fixture.function("0000:3b:00.1", ("10ee", "5001", "120000"), 0, "xocl");
    fixture.function("0000:af:00.0", ("1bd4", "0801", "120000"), 0, "");
    let mut discovery = driven(Driver::XilinxFpga);
    discovery.drivers.push(Driver::InspurFpga);
    let found = look(&fixture, &discovery);
    assert_eq!(
        short(&found.devices),
        ["0000:3b:00.0 FPGA [0000:3b:00.1]", "0000:af:00.0 FPGA [0000:af:00.0]"]
    );
    assert!(
        found.devices[0].deployables[0].traits.contains(&"CUSTOM_FPGA_PRODUCT_ID_5000".to_owned())
    );
    assert!(found.devices[1].deployables[0].traits.contains(&"CUSTOM_FPGA_INSPUR".to_owned()));
}

#[test]
fn only_inspurs_disks_are_found_without_being_named() {
    let fixture = Fixture::new();
    fixture.function("0000:d8:00.0", ("1bd4", "1001", "010802"), 1, "nvme");
    fixture.function("0000:d9:00.0", ("144d", "a808", "010802"), 1, "nvme");
    let found = look(&fixture, &driven(Driver::InspurNvme));
    assert_eq!(short(&found.devices), ["0000:d8:00.0 CUSTOM_SSD [0000:d8:00.0]"]);
    assert_eq!(
        found.devices[0].deployables[0].traits,
        ["OWNER_CYBORG", "CUSTOM_SSD_INSPUR", "CUSTOM_SSD_PRODUCT_ID_1001"]
    );
}

#[test]
fn the_fake_device_matches_upstreams() {
    let found = look(&Fixture::new(), &driven(Driver::Fake));
    let device = &found.devices[0];
    assert_eq!((device.address.as_str(), device.vendor_id.as_str()), ("0000:0c:00.0", "abcd"));
    assert_eq!(device.deployables[0].slots.len(), 16);
    assert_eq!(device.deployables[0].name, "FakeDevice");
}

#[test]
fn drivers_have_upstreams_names() {
    let all: Vec<&str> = Driver::ALL.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        Driver::parse(&all.join(", ")).expect("the drivers are known").len(),
        Driver::ALL.len()
    );
    assert_eq!(Driver::parse("").expect("an empty list is valid"), []);
    for wrong in ["nvidia", "pci_driver", "huawei_ascend_driver"] {
        assert!(Driver::parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn only_disks_that_the_option_names_are_offered() {
    let fixture = Fixture::new();
    fixture.function("0000:d7:00.0", ("144d", "a808", "020000"), 1, "igb");
    fixture.function("0000:d8:00.0", ("1bd4", "1001", "010802"), 1, "nvme");
    fixture.function("0000:d9:00.0", ("144d", "a808", "010802"), 1, "nvme");
    let specs = [
        r#"{"vendor_id": "144d"}"#,
        r#"{"address": "0000:d8:00.0", "clear_action": "auto"}"#,
        r#"{"address": "0000:da:00.0"}"#,
    ];
    let nvme = specs.iter().flat_map(|text| crate::NvmeSpec::parse(text).expect(text)).collect();
    let drivers = vec![Driver::InspurNvme];
    let found = look(&fixture, &Discovery { nvme, drivers, ..Discovery::default() });
    assert_eq!(
        short(&found.devices),
        ["0000:d8:00.0 CUSTOM_NVME [0000:d8:00.0]", "0000:d9:00.0 CUSTOM_NVME [0000:d9:00.0]"]
    );
    let traits = &found.devices[1].deployables[0].traits;
    assert_eq!(*traits, ["OWNER_CYBORG", "CUSTOM_NVME_144D_A808"]);
    let all = reasons(&found);
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(all[0].contains("it matches no NVMe function of this host"), "{all:?}");
}
