//! The division of the host's CPUs and memory pages as in nova.conf.

use kilonova_node::devices::CellOptions;
use kilonova_program::Failure;
use kilonova_program::config::{File, Options};

/// Group and option.
pub(super) const KNOWN: &Options = &[
    ("DEFAULT", RESERVED),
    ("compute", "cpu_dedicated_set"),
    ("compute", "cpu_shared_set"),
    ("compute", "numa_in_placement"),
];
const RESERVED: &str = "reserved_huge_pages";

pub(super) fn read(file: &File) -> Result<CellOptions, Failure> {
    let set = |option| file.get("compute", option).filter(|text| !text.trim().is_empty());
    let reserved = file.values("DEFAULT", RESERVED);
    let reserved: Vec<String> = reserved.into_iter().map(|(_, text)| text).collect();
    let page_kib = rustix::param::page_size() as u64 / 1024;
    CellOptions::new(set("cpu_shared_set"), set("cpu_dedicated_set"), &reserved, page_kib).map_err(
        |(option, why)| {
            let group = if option == RESERVED { "DEFAULT" } else { "compute" };
            file.wrong(group, option, &why)
        },
    )
}

/// True if the host offers its CPUs and memory by NUMA cell. A host with one cell never does. By default, a host with
/// dedicated CPUs does.
pub(super) fn in_placement(file: &File, cells: &CellOptions) -> Result<bool, Failure> {
    let configured = file.parse("compute", "numa_in_placement", "true or false")?;
    Ok(configured.unwrap_or(cells.dedicated().is_some()))
}

/// The number of CPUs that are reserved for the host. As in Nova, it cannot be set together with the sets, which leave
/// out the host's own CPUs.
pub(super) fn reserved_cpus(file: &File, reserved: i64) -> Result<i64, Failure> {
    let is_set = |option| file.get("compute", option).is_some_and(|text| !text.trim().is_empty());
    if reserved > 0 && (is_set("cpu_shared_set") || is_set("cpu_dedicated_set")) {
        let why = "it cannot be set together with [compute] cpu_shared_set or cpu_dedicated_set: guests do not use \
                   CPUs outside these sets";
        return Err(file.wrong("DEFAULT", "reserved_host_cpus", why));
    }
    Ok(reserved)
}
