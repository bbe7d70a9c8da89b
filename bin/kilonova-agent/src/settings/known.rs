//! The options that this version knows, except those of devices. Unknown options are refused: a
//! misspelled option that is silently ignored is hard to find.

use kilonova_program::config::{Options, vendordata};

/// All options.
pub(super) const KNOWN: &[&Options] = &[
    OPTIONS,
    super::cells::KNOWN,
    super::files::KNOWN,
    super::libvirt::KNOWN,
    super::volumes::KNOWN,
    vendordata::KNOWN,
];

/// Group and option.
const OPTIONS: &Options = &[
    ("DEFAULT", "cpu_allocation_ratio"),
    ("DEFAULT", "debug"),
    ("DEFAULT", "log_format"),
    ("DEFAULT", "disk_allocation_ratio"),
    ("DEFAULT", "host"),
    ("DEFAULT", "initial_cpu_allocation_ratio"),
    ("DEFAULT", "initial_disk_allocation_ratio"),
    ("DEFAULT", "initial_ram_allocation_ratio"),
    ("DEFAULT", "max_concurrent_builds"),
    ("DEFAULT", "my_ip"),
    ("DEFAULT", "ram_allocation_ratio"),
    ("DEFAULT", "reserved_host_cpus"),
    ("DEFAULT", "reserved_host_disk_mb"),
    ("DEFAULT", "reserved_host_memory_mb"),
    ("DEFAULT", "state_path"),
    ("DEFAULT", "sync_power_state_interval"),
    ("linux_bridge", "bridge_mappings"),
    ("linux_bridge", "physical_interface_mappings"),
    ("network", "metadata"),
    ("network", "routers"),
    ("node", "control"),
    ("node", "pki_dir"),
    ("node", "sysfs"),
    ("node", "token_file"),
];

#[cfg(test)]
mod tests {
    use kilonova_program::config::upstream::{self, Fate, SourceFile};

    use super::KNOWN;

    #[test]
    fn the_table_of_upstreams_options_states_what_is_used() {
        let is_used = |group, option| kilonova_program::config::is_known(KNOWN, group, option);
        for one in upstream::all() {
            let known = is_used(one.group, one.name);
            let shown = format!("[{}] {}", one.group, one.name);
            match &one.fate {
                Fate::Used(users) if users.has_agent() => assert!(known, "{shown} is not read"),
                // cyborg.conf's [nova] is for an external Nova.
                _ if one.files == [SourceFile::Cyborg] && one.group == "nova" => {}
                _ => assert!(!known, "{shown} is read"),
            }
        }
    }
}
