//! Validates extra specs in known namespaces (from microversion 2.86).
//!
//! A key in an unknown namespace is accepted, because other programs read extra specs too. A key in
//! a known namespace that no rule covers is refused, because it is most likely misspelt.

mod rules;
mod value;

use kilonova_wire::Refusal;
use regex::Regex;
use value::Kind;

/// A pattern for keys, and the kind of their values.
struct Rule {
    key: Regex,
    kind: Kind,
}

/// Checks one extra spec.
///
/// # Errors
/// 400 with the reason.
pub fn check(key: &str, value: &str) -> Result<(), Refusal> {
    if let Some(answer) = rules::of_placement(key, value) {
        return answer.map_err(|fault| named(key, fault));
    }
    if let Some(rule) = rules::RULES.iter().find(|rule| rule.key.is_match(key)) {
        return rule.kind.check(value).map_err(|fault| named(key, fault));
    }
    match key.split_once(':') {
        Some((namespace, _)) if rules::is_known_namespace(namespace) => {
            Err(Refusal::bad_request(format!(
                "Validation failed; extra spec '{key}' does not appear to be a valid extra spec."
            )))
        }
        _ => Ok(()),
    }
}

/// Adds the name of the extra spec to a fault.
fn named(key: &str, mut fault: Refusal) -> Refusal {
    if !fault.message.contains(key) {
        fault.message.push_str(&format!(" (extra spec '{key}')"));
    }
    fault
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(key: &str, value: &str) -> Option<String> {
        check(key, value).err().map(|fault| fault.message)
    }

    #[test]
    fn sensible_specs_pass() {
        for (key, value) in [
            ("accel:device_profile", "gpu"),
            ("resources:VGPU", "1"),
            ("resources1:CUSTOM_A", "0"),
            ("resources_left:PGPU", "2"),
            ("trait:CUSTOM_NVIDIA_11", "required"),
            ("trait2:HW_CPU_X86_AVX2", "forbidden"),
            ("group_policy", "isolate"),
            ("hw:cpu_policy", "dedicated"),
            ("hw:numa_cpus.0", "0-3,^2"),
            ("hw:numa_mem.1", "1024"),
            ("hw:mem_page_size", "1GB"),
            ("hw:watchdog_action", "reset"),
            ("pci_passthrough:alias", "a1:2, b:1"),
            ("quota:disk_read_iops_sec", "100"),
            ("capabilities:cpu_info:features", "<in> avx"),
            ("aggregate_instance_extra_specs:ssd", "true"),
            ("os:secure_boot", "required"),
            ("mine:whatever", "x"),
            ("plain", "x"),
        ] {
            assert_eq!(refusal(key, value), None, "{key}={value}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_the_reason() {
        for (key, value, reason) in [
            ("resources:VGPU", "one", "'one' is not a valid integer value"),
            ("resources:VGPUS", "1", "does not appear to be a valid extra spec"),
            ("resources:CUSTOM_a", "1", "does not appear to be a valid extra spec"),
            ("trait:CUSTOM_A", "wanted", "'wanted' is not one of: required, forbidden."),
            ("trait:HW_NOT_THERE", "required", "does not appear to be a valid extra spec"),
            ("accel:profile", "x", "does not appear to be a valid extra spec"),
            ("group_policy", "spread", "'spread' is not one of: isolate, none."),
            ("hw:cpu_realtime", "maybe", "'maybe' is not a valid boolean-like value"),
            ("hw:cpu_sockets", "0", "'0' is less than the min value of '1'"),
            ("hw:numa_mem.x", "1", "does not appear to be a valid extra spec"),
            ("pci_passthrough:alias", "a1", "'a1' is not of the format"),
            ("quota:cpu_shares", "-1", "'-1' is less than the min value of '0'"),
        ] {
            let message = refusal(key, value).unwrap_or_default();
            assert!(message.contains(reason), "{key}={value}: {message:?}");
        }
    }
}
