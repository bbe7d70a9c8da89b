//! The CPU element of a domain.

use kilonova_node_api::{GuestNuma, Machine};

use super::element::Element;
use super::{HostProfile, numa};
use crate::config::CpuMode;

pub(super) fn cpu(
    host: &HostProfile,
    vcpus: i64,
    machine: &Machine,
    numa: Option<&GuestNuma>,
    distances: &[Vec<u32>],
) -> Element {
    let mut cpu = Element::new("cpu");
    match host.config.cpu_mode() {
        CpuMode::HostModel => cpu = cpu.with("mode", "host-model").with("check", "partial"),
        CpuMode::HostPassthrough => {
            cpu = cpu.with("mode", "host-passthrough").with("check", "none");
        }
        CpuMode::Custom => {
            cpu = cpu.with("mode", "custom").with("match", "exact").with("check", "partial");
            if let Some(model) = &host.cpu_model {
                cpu.push(Element::text("model", model).with("fallback", "forbid"));
            }
        }
        CpuMode::None => {}
    }
    let (sockets, cores, threads) = match machine.topology {
        Some(topology) => (topology.sockets, topology.cores, topology.threads),
        None => (vcpus, 1, 1),
    };
    cpu.push(
        Element::new("topology")
            .with("sockets", sockets)
            .with("cores", cores)
            .with("threads", threads),
    );
    if host.config.cpu_mode() != CpuMode::None {
        for flag in &host.config.cpu_model_extra_flags {
            let (policy, name) = match flag.strip_prefix('-') {
                Some(name) => ("disable", name),
                None => ("require", flag.trim_start_matches('+')),
            };
            let name = name.to_lowercase();
            cpu.push(Element::new("feature").with("policy", policy).with("name", name));
        }
    }
    if let Some(numa) = numa {
        cpu.push(numa::cells(numa, distances));
    }
    cpu
}

/// The CPU models that guests can use, from libvirt's domain capabilities.
pub(crate) fn usable_models(capabilities: &str) -> Vec<String> {
    let Ok(document) = roxmltree::Document::parse(capabilities) else { return Vec::new() };
    document
        .descendants()
        .filter(|node| node.has_tag_name("mode") && node.attribute("name") == Some("custom"))
        .flat_map(|node| node.children())
        .filter(|node| node.has_tag_name("model") && node.attribute("usable") == Some("yes"))
        .filter_map(|node| node.text().map(str::to_owned))
        .collect()
}
