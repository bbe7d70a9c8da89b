//! Tests of the NUMA cells on a fixture of sysfs.

use super::*;
use crate::testing::Fixture;

/// Two nodes of four CPUs: 0-3 in cores of two threads (0,2 and 1,3), 4-7 with one thread each.
fn fixture() -> Fixture {
    let fixture = Fixture::new();
    for (node, cpus, memory) in [(0, "0-3", 4_194_304), (1, "4-7", 2_097_152)] {
        let node = format!("devices/system/node/node{node}");
        fixture.write(&format!("{node}/cpulist"), &format!("{cpus}\n"));
        let meminfo = format!("Node 0 MemTotal:       {memory} kB\nNode 0 MemFree:        12 kB\n");
        fixture.write(&format!("{node}/meminfo"), &meminfo);
        fixture.write(&format!("{node}/hugepages/hugepages-2048kB/nr_hugepages"), "512\n");
        fixture.write(&format!("{node}/hugepages/hugepages-1048576kB/nr_hugepages"), "1\n");
    }
    fixture.write("devices/system/node/node0/distance", "10 21\n");
    fixture.write("devices/system/node/node1/distance", "21 10\n");
    fixture.write("devices/system/node/possible", "0-1\n");
    fixture.write("devices/system/node/has_cpu", "0-1\n");
    for cpu in 0..8 {
        let siblings = match cpu {
            0 | 2 => "0,2".to_owned(),
            1 | 3 => "1,3".to_owned(),
            _ => cpu.to_string(),
        };
        let topology = format!("devices/system/cpu/cpu{cpu}/topology");
        fixture.write(&format!("{topology}/thread_siblings_list"), &siblings);
        fixture.write(&format!("{topology}/physical_package_id"), &format!("{}\n", cpu / 4));
    }
    fixture
}

fn options(shared: Option<&str>, dedicated: Option<&str>, reserved: &[&str]) -> CellOptions {
    let reserved: Vec<String> = reserved.iter().map(|text| (*text).to_owned()).collect();
    CellOptions::new(shared, dedicated, &reserved, 4).expect("the options are valid")
}

fn read(fixture: &Fixture, options: &CellOptions) -> Vec<NumaCell> {
    let found = options.read(&fixture.sysfs()).expect("the cells can be read");
    found.cells.expect("there are cells")
}

/// The last problem.
fn problem(fixture: &Fixture, options: &CellOptions) -> String {
    let found = options.read(&fixture.sysfs()).expect("the cells can be read");
    found.problems.last().expect("the host differs").clone()
}

fn sets(cells: &[NumaCell]) -> Vec<(&str, &str)> {
    cells.iter().map(|cell| (cell.shared.as_str(), cell.dedicated.as_str())).collect()
}

#[test]
fn cells_have_cpus_cores_sockets_memory_pages_and_distances() {
    let cells = read(&fixture(), &CellOptions::default());
    let page = |size_kib, total| NumaPages { size_kib, total, reserved: 0 };
    let first = NumaCell {
        id: 0,
        shared: "0-3".into(),
        dedicated: String::new(),
        cores: vec!["0,2".into(), "1,3".into()],
        socket: Some(0),
        memory_mb: 4096,
        pages: vec![page(4, 524_288), page(2048, 512), page(1_048_576, 1)],
        distances: vec![10, 21],
    };
    assert_eq!(cells[0], first);
    assert_eq!(cells[1].cores, ["4", "5", "6", "7"]);
    assert_eq!((cells[1].socket, cells[1].memory_mb), (Some(1), 2048));
    assert_eq!(cells[1].pages[0], page(4, 0), "all memory is in large pages");
    assert!(has_threads(&cells));
    assert!(!has_threads(&cells[1..]));
}

#[test]
fn the_sets_divide_the_cpus() {
    let fixture = fixture();
    let divided = |shared, dedicated| {
        let cells = read(&fixture, &options(shared, dedicated, &[]));
        let of = |list: (&str, &str)| (list.0.to_owned(), list.1.to_owned());
        sets(&cells).into_iter().map(of).collect::<Vec<_>>()
    };
    let pairs = |list: [(&str, &str); 2]| list.map(|(a, b)| (a.to_owned(), b.to_owned()));
    assert_eq!(divided(None, None), pairs([("0-3", ""), ("4-7", "")]));
    assert_eq!(divided(None, Some("2-5")), pairs([("", "2-3"), ("", "4-5")]));
    assert_eq!(divided(Some("0-1"), None), pairs([("0-1", ""), ("", "")]));
    assert_eq!(divided(Some("0,4"), Some("1-7,^4")), pairs([("0", "1-3"), ("4", "5-7")]));
    // CPUs of neither set are not for guests, but are still threads of their cores.
    let cells = read(&fixture, &options(Some("0"), Some("1"), &[]));
    assert_eq!(cells[0].cores, ["0,2", "1,3"]);
}

#[test]
fn reserved_pages_are_kept_from_guests() {
    let fixture = fixture();
    let reserved =
        ["node:0,size:2048,count:64", "node:1,size:1GB,count:1", "node:0,size:4,count:1000"];
    let cells = read(&fixture, &options(None, None, &reserved));
    let kept = |cell: usize| cells[cell].pages.iter().map(|page| page.reserved).collect::<Vec<_>>();
    assert_eq!((kept(0), kept(1)), (vec![1000, 64, 0], vec![0, 0, 1]));
    let why = problem(&fixture, &options(None, None, &["node:1,size:2048,count:513"]));
    assert!(why.starts_with("Invalid 'reserved_huge_pages' config: NUMA node 1 has 512"), "{why}");
    let why = problem(&fixture, &options(None, None, &["node:2,size:2048,count:1"]));
    assert!(why.contains("NUMA node 2 has 0 pages"), "{why}");
}

#[test]
fn invalid_options_are_named() {
    let invalid = |shared, dedicated, reserved: &str| {
        let reserved: Vec<String> = match reserved {
            "" => vec![],
            text => vec![text.to_owned()],
        };
        CellOptions::new(shared, dedicated, &reserved, 4).expect_err("the options are invalid")
    };
    assert_eq!(invalid(Some("a"), None, "").0, "cpu_shared_set");
    assert_eq!(invalid(Some("^0"), None, "").1, "it names no CPU");
    assert_eq!(invalid(None, Some("3-1"), "").1, "Invalid range expression '3-1'");
    assert_eq!(invalid(Some("0-3"), Some("3-4"), "").0, "cpu_dedicated_set");
    for text in [
        "node:0,size:2048",
        "node:0,size:any,count:1",
        "node:x,size:2048,count:1",
        "node:0,size:2048,count:-1",
        "node:0,size:2048,count:1,what:1",
        "2048",
        "node:0,size:1B,count:1",
    ] {
        assert_eq!(invalid(None, None, text), ("reserved_huge_pages", RESERVED_SYNTAX.to_owned()));
    }
}

#[test]
fn cpus_that_are_not_online_are_a_problem_in_novas_words() {
    let fixture = fixture();
    fixture.write("devices/system/node/node1/cpulist", "4-6\n");
    let why = problem(&fixture, &options(Some("0"), Some("4-7"), &[]));
    assert_eq!(
        why,
        "Invalid 'cpu_dedicated_set' config: one or more of the configured CPUs is not online. \
         Online cpuset(s): 0-6, configured cpuset(s): 4-7"
    );
    let divided = options(Some("0"), Some("4-7"), &[]);
    assert_eq!(sets(&read(&fixture, &divided)), [("0", ""), ("", "4-6")], "the others stay");
    let why = problem(&fixture, &options(Some("7"), None, &[]));
    assert!(why.starts_with("Invalid 'cpu_shared_set' config"), "{why}");
    let why = problem(&fixture, &options(None, Some("4"), &[]));
    assert!(why.contains("leaves no VCPU"), "{why}");
}

#[test]
fn a_kernel_without_nodes_has_no_cells() {
    let empty = Fixture::new();
    let found = CellOptions::default().read(&empty.sysfs()).expect("it can be read");
    assert_eq!(found, FoundCells { cells: None, problems: Vec::new() });
    let why = problem(&empty, &options(None, Some("0"), &[]));
    assert!(why.contains("reports no NUMA nodes"), "{why}");
}

#[test]
fn odd_hosts_are_read_as_far_as_the_kernel_describes_them() {
    let fixture = fixture();
    // A node with only memory, such as that of a CXL card, and a node that spans two sockets.
    fixture.write("devices/system/node/node2/cpulist", "\n");
    fixture.write("devices/system/node/node2/meminfo", "Node 2 MemTotal: 1024 kB\n");
    fixture.write("devices/system/cpu/cpu5/topology/physical_package_id", "7");
    std::fs::remove_dir_all(fixture.root().join("devices/system/cpu/cpu6"))
        .expect("the directory is removed");
    let cells = read(&fixture, &CellOptions::default());
    assert_eq!((cells[1].socket, cells[1].cores.len()), (None, 4));
    let memory = &cells[2];
    assert_eq!((memory.shared.as_str(), memory.socket, memory.memory_mb), ("", None, 1));
    assert_eq!(memory.pages, [NumaPages { size_kib: 4, total: 256, reserved: 0 }]);
    fixture.write("devices/system/node/node2/meminfo", "Node 2 MemFree: 1024 kB\n");
    let why =
        CellOptions::default().read(&fixture.sysfs()).expect_err("the file is invalid").to_string();
    assert!(why.starts_with("devices/system/node/node2/meminfo has unexpected content"), "{why}");
}
