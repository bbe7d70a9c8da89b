//! `[libvirt]` as in nova.conf.

use std::time::Duration;

use kilonova_libvirt::{CpuMode, LibvirtConfig, TimeoutAction, VirtType};
use kilonova_node_api::DiskFormat;
use kilonova_program::Failure;
use kilonova_program::config::{File, Options};

const GROUP: &str = "libvirt";
const NUMBER: &str = "an integer of at least 0";

/// Group and option.
pub(super) const KNOWN: &Options = &[
    ("DEFAULT", "shutdown_timeout"),
    (GROUP, "connection_uri"),
    (GROUP, "cpu_mode"),
    (GROUP, "cpu_model_extra_flags"),
    (GROUP, "cpu_models"),
    (GROUP, "device_detach_attempts"),
    (GROUP, "device_detach_timeout"),
    (GROUP, "disk_cachemodes"),
    (GROUP, "hw_machine_type"),
    (GROUP, "live_migration_bandwidth"),
    (GROUP, "live_migration_completion_timeout"),
    (GROUP, "live_migration_downtime"),
    (GROUP, "live_migration_downtime_delay"),
    (GROUP, "live_migration_downtime_steps"),
    (GROUP, "live_migration_parallel_connections"),
    (GROUP, "live_migration_permit_auto_converge"),
    (GROUP, "live_migration_permit_post_copy"),
    (GROUP, "live_migration_scheme"),
    (GROUP, "live_migration_timeout_action"),
    (GROUP, "live_migration_uri"),
    (GROUP, "live_migration_with_native_tls"),
    (GROUP, "num_pcie_ports"),
    (GROUP, "realtime_scheduler_priority"),
    (GROUP, "snapshot_image_format"),
    (GROUP, "virt_type"),
];

pub(super) fn read(file: &File) -> Result<LibvirtConfig, Failure> {
    let usual = LibvirtConfig::default();
    let text = |option| file.get(GROUP, option).map(str::to_owned);
    let yes = |option, usual| {
        Ok::<bool, Failure>(file.parse(GROUP, option, "true or false")?.unwrap_or(usual))
    };
    let number =
        |option, usual| Ok::<u64, Failure>(file.parse(GROUP, option, NUMBER)?.unwrap_or(usual));
    let few =
        |option, usual| Ok::<u32, Failure>(file.parse(GROUP, option, NUMBER)?.unwrap_or(usual));
    let seconds = |group, option, usual: Duration| {
        let read: Option<u64> = file.parse(group, option, "seconds")?;
        Ok::<_, Failure>(read.map_or(usual, Duration::from_secs))
    };
    let config = LibvirtConfig {
        connection_uri: text("connection_uri").unwrap_or(usual.connection_uri),
        virt_type: choice(file, "virt_type", &[("kvm", VirtType::Kvm), ("qemu", VirtType::Qemu)])?
            .unwrap_or(usual.virt_type),
        cpu_mode: choice(
            file,
            "cpu_mode",
            &[
                ("host-model", CpuMode::HostModel),
                ("host-passthrough", CpuMode::HostPassthrough),
                ("custom", CpuMode::Custom),
                ("none", CpuMode::None),
            ],
        )?,
        cpu_models: list(file, "cpu_models"),
        cpu_model_extra_flags: list(file, "cpu_model_extra_flags"),
        machine_type: of_kind(file, "hw_machine_type", std::env::consts::ARCH),
        disk_bus: usual.disk_bus,
        disk_cache: of_kind(file, "disk_cachemodes", "file"),
        block_cache: of_kind(file, "disk_cachemodes", "block"),
        network_cache: of_kind(file, "disk_cachemodes", "network"),
        num_pcie_ports: few("num_pcie_ports", usual.num_pcie_ports)?,
        realtime_scheduler_priority: few(
            "realtime_scheduler_priority",
            usual.realtime_scheduler_priority,
        )?,
        shutdown_timeout: seconds("DEFAULT", "shutdown_timeout", usual.shutdown_timeout)?,
        detach_timeout: seconds(GROUP, "device_detach_timeout", usual.detach_timeout)?,
        detach_attempts: few("device_detach_attempts", usual.detach_attempts)?,
        live_migration_uri: text("live_migration_uri"),
        live_migration_scheme: text("live_migration_scheme").unwrap_or(usual.live_migration_scheme),
        live_migration_with_native_tls: yes(
            "live_migration_with_native_tls",
            usual.live_migration_with_native_tls,
        )?,
        live_migration_bandwidth: number(
            "live_migration_bandwidth",
            usual.live_migration_bandwidth,
        )?,
        live_migration_downtime: number("live_migration_downtime", usual.live_migration_downtime)?,
        live_migration_downtime_steps: number(
            "live_migration_downtime_steps",
            usual.live_migration_downtime_steps,
        )?,
        live_migration_downtime_delay: number(
            "live_migration_downtime_delay",
            usual.live_migration_downtime_delay,
        )?,
        live_migration_completion_timeout: number(
            "live_migration_completion_timeout",
            usual.live_migration_completion_timeout,
        )?,
        live_migration_timeout_action: choice(
            file,
            "live_migration_timeout_action",
            &[("abort", TimeoutAction::Abort), ("force_complete", TimeoutAction::ForceComplete)],
        )?
        .unwrap_or(usual.live_migration_timeout_action),
        live_migration_permit_post_copy: yes(
            "live_migration_permit_post_copy",
            usual.live_migration_permit_post_copy,
        )?,
        live_migration_permit_auto_converge: yes(
            "live_migration_permit_auto_converge",
            usual.live_migration_permit_auto_converge,
        )?,
        live_migration_parallel_connections: few(
            "live_migration_parallel_connections",
            usual.live_migration_parallel_connections,
        )?,
        snapshot_image_format: choice(
            file,
            "snapshot_image_format",
            &[("raw", DiskFormat::Raw), ("qcow2", DiskFormat::Qcow2)],
        )?,
        ceph: usual.ceph,
        guest_cpus: usual.guest_cpus,
        sysfs: super::sysfs(file),
    };
    config.check().map_err(Failure::Refused)?;
    Ok(config)
}

fn choice<T: Copy>(file: &File, option: &str, known: &[(&str, T)]) -> Result<Option<T>, Failure> {
    let Some(text) = file.get(GROUP, option) else { return Ok(None) };
    match known.iter().find(|(name, _)| *name == text) {
        Some((_, value)) => Ok(Some(*value)),
        None => {
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            let why = format!("{text} is not a valid value; expected one of {}", names.join(", "));
            Err(file.wrong(GROUP, option, &why))
        }
    }
}

fn list(file: &File, option: &str) -> Vec<String> {
    let text = file.get(GROUP, option).unwrap_or_default();
    let items = text.split([',', '\n']).map(str::trim).filter(|item| !item.is_empty());
    items.map(str::to_owned).collect()
}

/// The value for a kind in `file=none,block=none` or `x86_64=q35`.
fn of_kind(file: &File, option: &str, kind: &str) -> Option<String> {
    list(file, option).iter().find_map(|item| {
        let (name, value) = item.split_once('=')?;
        (name.trim() == kind).then(|| value.trim().to_owned())
    })
}
