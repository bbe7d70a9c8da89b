//! Topology files: the examples, the shorthands, and every refusal.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kilonova_devices::{Cleanup, ModelNames};
use kilonova_node_api::{HandleSlot, NumaCell, NumaPages};

use crate::simulated::SimulatedSysfs;
use crate::topology::{Host, MdevGroup, MdevOptions, Topology};

const HOST: &str = "[[host]]\nname = \"h\"\nvcpus = 1\nmemory_mb = 1\ndisk_gb = 1\n";
const CARD: &str = "[card.c]\nvendor = \"10de\"\ntypes = [{ id = \"t\", available_instances = 2 }, { id = \"u\", available_instances = 2 }]\n";

fn example(name: &str) -> Topology {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/nodes").join(name);
    Topology::read(&path).expect("the topology is valid")
}

fn parse(text: &str) -> Result<Topology, String> {
    Topology::parse(text, Path::new("t.toml")).map_err(|error| error.to_string())
}

fn counts(host: &Host) -> Vec<(String, String, usize)> {
    let sysfs = SimulatedSysfs::in_memory(Arc::clone(&host.template.tree));
    let devices =
        host.template.discovery.devices(&sysfs, &|_| false).expect("the directory is readable");
    let slots = |slots: &[HandleSlot]| match slots {
        [HandleSlot::Mdev { count, .. }] => *count as usize,
        others => others.len(),
    };
    let deployables = devices.iter().flat_map(|device| &device.deployables);
    deployables.map(|d| (d.name.clone(), d.resource_class.to_string(), slots(&d.slots))).collect()
}

#[test]
fn the_demo_has_four_gpus_and_a_fake_fpga() {
    let demo = example("demo.toml");
    let names: Vec<&str> = demo.hosts.iter().map(|host| host.name.as_str()).collect();
    assert_eq!(names, ["virtlab606", "fpga1"]);
    let gpu = |n| (format!("pci_0000_{n}_00_0"), "VGPU".to_owned(), 16);
    assert_eq!(counts(&demo.hosts[0]), [gpu(84), gpu(85), gpu(86), gpu(87)]);
    assert_eq!(counts(&demo.hosts[1]), [("FakeDevice".to_owned(), "FPGA".to_owned(), 16)]);
}

#[test]
fn the_bench_has_a_thousand_hosts_that_share_their_properties() {
    let bench = example("bench.toml");
    assert_eq!(bench.hosts.len(), 1000);
    let (first, last) = (&bench.hosts[0], &bench.hosts[999]);
    assert_eq!((first.name.as_str(), first.address.as_str()), ("bench0001", "10.0.0.1"));
    assert_eq!((last.name.as_str(), last.address.as_str()), ("bench1000", "10.0.3.232"));
    assert!(Arc::ptr_eq(&first.template, &last.template));
    assert_eq!(counts(last).len(), 8);
}

#[test]
fn cards_for_passthrough() {
    let text = format!(
        "[card.f]\nvendor = \"8086\"\nproduct = \"09c4\"\nclass = \"120000\"\nresource_class = \"FPGA\"\n{HOST}\
         card = [{{ card = \"f\", addresses = [\"0000:0c:00.0\"] }}, {{ card = \"f\", addresses = [\"0000:0d:00.0\"], vfs = 3 }}]\n"
    );
    let topology = parse(&text).expect("the topology is valid");
    let fpga = |n: &str, count| (format!("0000:{n}:00.0"), "FPGA".to_owned(), count);
    assert_eq!(counts(&topology.hosts[0]), [fpga("0c", 1), fpga("0d", 3)]);
}

#[test]
fn hosts_without_mdev_settings_use_the_given_options() {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let file = folder.path().join("t.toml");
    let card = "card = [{ card = \"c\", addresses = [\"0000:84:00.0\", \"0000:85:00.0\"] }]\n";
    let host = |name: &str| format!("{}{card}", HOST.replace("\"h\"", &format!("{name:?}")));
    let text = format!(
        "{CARD}{}{}[host.devices]\nenabled_mdev_types = [\"u\"]\n{}[host.devices]\n{}[host.mdev.t]\n",
        host("silent"),
        host("own"),
        host("none"),
        host("groups")
    );
    std::fs::write(&file, text).expect("the file is written");
    let group = MdevGroup {
        device_addresses: vec!["0000:85:00.0".into()],
        mdev_class: Some(kilonova_ids::ResourceClass::verbatim("CUSTOM_SMALL")),
        max_instances: Some(1),
        min_instances: None,
    };
    let options = MdevOptions {
        enabled: vec!["t".into()],
        groups: [("t".to_owned(), group)].into(),
        retyping: false,
        mig_instances: false,
    };
    let topology =
        Topology::read_with(&file, &options, &Cleanup::default()).expect("the topology is valid");
    let gpu = |n, class: &str, count| (format!("pci_0000_{n}_00_0"), class.to_owned(), count);
    let all: Vec<_> = topology.hosts.iter().map(counts).collect();
    assert_eq!(all[0], [gpu(85, "CUSTOM_SMALL", 1)]);
    assert_eq!(all[1], [gpu(84, "VGPU", 2), gpu(85, "VGPU", 2)]);
    assert_eq!((&all[2], &all[3]), (&vec![], &vec![]));

    let group = MdevGroup { device_addresses: vec!["mtty_mtty".into()], ..MdevGroup::default() };
    let options = MdevOptions {
        enabled: vec!["t".into()],
        groups: [("t".to_owned(), group)].into(),
        retyping: false,
        mig_instances: false,
    };
    let error = Topology::read_with(&file, &options, &Cleanup::default())
        .expect_err("an unknown device is refused")
        .to_string();
    assert!(
        error.contains("host[0].devices: from the configuration file: ")
            && error.contains("[mdev_t] device_addresses: incorrect device address: mtty_mtty"),
        "{error}"
    );
}

#[test]
fn refusals_name_the_file_and_the_key() {
    let host = |rest: &str| format!("{CARD}{HOST}{rest}");
    let card = |rest: &str| host(&format!("card = [{{ card = \"c\", {rest} }}]\n"));
    let devices = |rest: &str| format!("{}{rest}", card("addresses = [\"0000:84:00.0\"]"));
    let both = "[host.devices]\nenabled_mdev_types = [\"t\", \"u\"]\n\
                [host.mdev.t]\ndevice_addresses = [\"0000:84:00.0\"]\n[host.mdev.u]\ndevice_addresses = [\"0000:84:00.0\"]\n";
    let numa = |cell: &str| host(&format!("numa = [{cell}]\n"));
    let cases = [
        ("card = 1".to_owned(), "line 1"),
        (host("colour = \"red\"\n"), "line 9: unknown field `colour`"),
        ("[[host]]\nname = \"h\"\n".to_owned(), "missing field `vcpus`"),
        (format!("{HOST}{HOST}"), "host[1].name: duplicate host name h"),
        (HOST.replace("\"h\"", "\"a/b\""), "host[0].name: 'a/b' is not a host name"),
        (HOST.replace("\"h\"", "\"..\""), "host[0].name: '..' is not a host name"),
        (host("count = 2\n"), "host[0].name: with count, the name must contain {n}"),
        (HOST.replace("\"h\"", "\"h{n}\""), "host[0].name: {n} needs count"),
        (host("address = \"nowhere\"\n"), "host[0].address: 'nowhere'"),
        (HOST.replace("vcpus = 1", "vcpus = -1"), "host[0].vcpus: it must not be negative"),
        (host("ram_allocation_ratio = 0.0\n"), "allocation ratios must be above 0"),
        (host("max_concurrent_builds = 0\n"), "host[0].max_concurrent_builds"),
        (
            host("card = [{ card = \"x\", addresses = [] }]\n"),
            "host[0].card[0].card: unknown card [card.x]",
        ),
        (
            card("addresses = [\"84:00.0\"]"),
            "host[0].card[0].addresses: '84:00.0' does not look like",
        ),
        (
            card("addresses = [\"0000:84:00.0\", \"0000:84:00.0\"]"),
            "addresses: 0000:84:00.0 is used twice",
        ),
        (
            card("addresses = [\"0000:ff:1f.0\"], vfs = 9"),
            "host[0].card[0].vfs: not enough addresses after 0000:ff:1f.0",
        ),
        (
            card("addresses = [\"0000:84:00.0\"], switch = \"0000:16\""),
            "host[0].card[0].addresses: '0000:16' is not the PCI address of a switch",
        ),
        (
            host("devices = { nvlink_islands = [\"0000:84:00.0\"] }\n"),
            "host[0].devices.nvlink_islands: '0000:84:00.0' is not an island",
        ),
        (host("fake = [{ address = \"x\" }]\n"), "host[0].fake[0].address: 'x'"),
        (
            numa("{ shared = \"0,1\", memory_mb = 1 }"),
            "host[0].numa: the cells have 2 CPUs, but vcpus",
        ),
        (
            numa("{ shared = \"0\", memory_mb = 2 }"),
            "host[0].numa: the cells have 2 MB, but memory",
        ),
        (numa("{ shared = \"0-a\", memory_mb = 1 }"), "numa[0].shared: Invalid range expression"),
        (
            numa("{ shared = \"0\", dedicated = \"0\", memory_mb = 1 }"),
            "numa[0].dedicated: CPU 0 is named twice",
        ),
        (numa("{ shared = \"0\", memory_mb = 1, threads = 0 }"), "numa[0].threads"),
        (numa("{ shared = \"0\", memory_mb = 1, distances = [1, 2] }"), "numa[0].distances"),
        (
            numa("{ shared = \"0\", memory_mb = 1, pages = { 2048 = 1 } }"),
            "numa[0].pages: the pages are larger than the memory",
        ),
        (numa("{ shared = \"0\", memory_mb = 1, pages = { x = 1 } }"), "numa[0].pages: sizes are"),
        (host("times_ms = { boot = 1 }\n"), "host[0].times_ms.boot: 'boot' is not a step"),
        (host("fail = [{ step = \"boot\" }]\n"), "host[0].fail[0].step: 'boot' is not a step"),
        (
            host("fail = [{ step = \"create_mdev\", server_name = \"x\" }]\n"),
            "host[0].fail[0].server_name: the kernel",
        ),
        (
            devices(both),
            "host[0].devices: Invalid configuration for mdev-capable devices: [mdev_u] \
             device_addresses: duplicate types for PCI ID 0000:84:00.0: it is listed for t and for u",
        ),
        (
            CARD.replace("10de", "10DE") + HOST,
            "card.c.vendor: '10DE' must be 4 lower-case hex digits",
        ),
        (
            CARD.replacen("= 2", "= 0", 1) + HOST,
            "card.c.types[0].available_instances: it must be at least 1",
        ),
    ];
    for (text, part) in cases {
        let error = parse(&text).expect_err(part);
        assert!(error.starts_with("t.toml: "), "{error}");
        assert!(error.contains(part), "expected {part:?} in {error:?}");
        assert!(!error.contains('\n'), "{error:?}");
    }
    let forms = [
        (
            numa("{ shared = 4, memory_mb = 1 }"),
            "integer `4`, expected CPUs as a list in a string, such as \"0-3,8\"",
        ),
        (
            numa("{ dedicated = [4, 5], memory_mb = 1 }"),
            "sequence, expected CPUs as a list in a string",
        ),
        (
            numa("{ shared = \"0\", memory_mb = 1, pages = 4 }"),
            "integer `4`, expected numbers of pages by size in KiB, such as { 2048 = 512 }",
        ),
        (
            numa("{ shared = \"0\", memory_mb = 1, reserved_pages = [4] }"),
            "sequence, expected numbers of pages by size in KiB",
        ),
        (
            numa("{ shared = \"0\", memory_mb = 1, distances = 10 }"),
            "integer `10`, expected the distances to all cells in a list, such as [10, 20]",
        ),
        (
            card("addresses = \"0000:84:00.0\""),
            "expected PCI addresses as strings in a list, such as [\"0000:84:00.0\"]",
        ),
        (
            host("devices = { nvlink_islands = [[\"0000:84:00.0\"]] }\n"),
            "sequence, expected a list with a string for each island",
        ),
        (
            host("devices = { xid_policy = { 94 = \"report\" } }\n"),
            "map, expected reactions in one string, such as \"94:quarantine, 13:report\"",
        ),
        (
            host("pci = { device_spec = [{ vendor_id = \"10de\" }] }\n"),
            "map, expected a list of strings with JSON, such as ['{\"vendor_id\": \"10de\"}']",
        ),
        (
            CARD.replace("\"10de\"", "1002") + HOST,
            "integer `1002`, expected hex digits in a string",
        ),
    ];
    for (text, part) in forms {
        let error = parse(&text).expect_err(part);
        assert!(error.contains(part), "expected {part:?} in {error:?}");
        assert!(error.starts_with("t.toml: line "), "{error}");
        assert!(!error.contains('\n'), "{error:?}");
    }
    let missing = Topology::read(Path::new("/nonexistent/t.toml"))
        .expect_err("a missing file is refused")
        .to_string();
    assert!(missing.starts_with("/nonexistent/t.toml: "), "{missing}");
}

#[test]
fn hosts_may_have_numa_cells() {
    let text = "[[host]]\nname = \"h\"\nvcpus = 8\nmemory_mb = 6144\ndisk_gb = 1\n\
                numa = [\n\
                { shared = \"0-1\", dedicated = \"2-3\", threads = 2, socket = 0, memory_mb = 4096, \
                pages = { 2048 = 512, 1048576 = 1 }, reserved_pages = { 2048 = 8 } },\n\
                { dedicated = \"4-7\", memory_mb = 2048, distances = [32, 10] },\n]\n";
    let topology = parse(text).expect("the topology is valid");
    let cells = topology.hosts[0].template.cells.as_ref().expect("there are cells");
    let page = |size_kib, total, reserved| NumaPages { size_kib, total, reserved };
    let first = NumaCell {
        id: 0,
        shared: "0-1".into(),
        dedicated: "2-3".into(),
        cores: vec!["0-1".into(), "2-3".into()],
        socket: Some(0),
        memory_mb: 4096,
        pages: vec![page(4, 524_288, 0), page(2048, 512, 8), page(1_048_576, 1, 0)],
        distances: vec![10, 20],
    };
    assert_eq!(cells[0], first);
    assert_eq!((cells[1].id, cells[1].cores.len(), &*cells[1].distances), (1, 4, &[32, 10][..]));
    let plain = parse(HOST).expect("the topology is valid");
    assert_eq!(plain.hosts[0].template.cells, None);
    let in_placement = |text: &str| {
        parse(text).expect("the topology is valid").hosts[0].template.numa_in_placement
    };
    assert!(in_placement(text), "a host with dedicated CPUs offers them by NUMA cell");
    assert!(!in_placement(&format!("{text}numa_in_placement = false\n")));
    assert!(!in_placement(HOST));
    assert!(
        !in_placement(
            &text
                .replace("dedicated", "shared")
                .replace("shared = \"0-1\", ", "")
                .replace("vcpus = 8", "vcpus = 6")
        ),
        "all CPUs are shared"
    );
}

#[test]
fn devices_have_the_models_of_their_ids() {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let file = folder.path().join("pci.ids");
    let names = "10de  NVIDIA Corporation\n\t13bd  GM107GL [Tesla M10]\n";
    std::fs::write(&file, names).expect("the file is written");
    let names = ModelNames::read_from(&file).expect("the file is read");
    let demo = example("demo.toml").with_models_of(&names);
    let models = |host: &Host| -> Vec<String> {
        let sysfs = SimulatedSysfs::in_memory(Arc::clone(&host.template.tree));
        let found =
            host.template.discovery.devices(&sysfs, &|_| false).expect("the devices are readable");
        found.into_iter().map(|device| device.model).collect()
    };
    assert_eq!(models(&demo.hosts[0]), ["NVIDIA Corporation GM107GL [Tesla M10]"; 4]);
    let bench = example("bench.toml").with_models_of(&names);
    let (first, last) = (&bench.hosts[0].template, &bench.hosts[999].template);
    assert!(Arc::ptr_eq(first, last), "the hosts of an entry share their properties");
}
