//! Options of the driver, named as in `nova.conf`, section `[libvirt]`.

use std::path::PathBuf;
use std::time::Duration;

use kilonova_node_api::DiskFormat;
use kilonova_topology::Cpus;

/// The domain type (`virt_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VirtType {
    /// Hardware virtualization.
    Kvm,
    /// Emulation without KVM.
    Qemu,
}

impl VirtType {
    /// `kvm` or `qemu`, as in domain XML.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Qemu => "qemu",
        }
    }
}

/// The CPU model that a guest sees (`cpu_mode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuMode {
    /// A named model close to the host's CPU.
    HostModel,
    /// The host's CPU, unchanged.
    HostPassthrough,
    /// The first of `cpu_models` that the host supports.
    Custom,
    /// QEMU's default.
    None,
}

/// The action when a live migration exceeds its completion timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeoutAction {
    /// The migration is aborted; the guest stays on the source.
    Abort,
    /// The guest is paused, or switched to post-copy, until the migration completes.
    ForceComplete,
}

/// Options of the driver.
#[derive(Debug, Clone, PartialEq)]
pub struct LibvirtConfig {
    /// Libvirt's URI (`connection_uri`).
    pub connection_uri: String,
    /// `virt_type`.
    pub virt_type: VirtType,
    /// `cpu_mode`. Default: `host-model` for KVM, `none` for QEMU.
    pub cpu_mode: Option<CpuMode>,
    /// `cpu_models`.
    pub cpu_models: Vec<String>,
    /// `cpu_model_extra_flags`: `pcid`, `+vmx`, `-mtrr`.
    pub cpu_model_extra_flags: Vec<String>,
    /// `hw_machine_type` for images that name none. Default: `q35`.
    pub machine_type: Option<String>,
    /// Disk bus for images that name none.
    pub disk_bus: String,
    /// `disk_cachemodes` for files: `none`, `writeback`, `unsafe`, …
    pub disk_cache: Option<String>,
    /// `disk_cachemodes` for block devices of volumes. Default: `none`.
    pub block_cache: Option<String>,
    /// `disk_cachemodes` for network disks of volumes. Default: `none`.
    pub network_cache: Option<String>,
    /// `num_pcie_ports`: PCIe root ports to plug devices into. 0 lets libvirt add as many as it
    /// needs.
    pub num_pcie_ports: u32,
    /// `realtime_scheduler_priority`: the priority of vCPUs with a realtime scheduler.
    pub realtime_scheduler_priority: u32,
    /// How long a guest may take to shut down (`shutdown_timeout`).
    pub shutdown_timeout: Duration,
    /// How long one attempt to detach a device may take (`device_detach_timeout`).
    pub detach_timeout: Duration,
    /// How many attempts are made (`device_detach_attempts`).
    pub detach_attempts: u32,
    /// `live_migration_uri`, with `%s` for the destination. Default: built from the scheme.
    pub live_migration_uri: Option<String>,
    /// `live_migration_scheme` for the default URI: `tcp`, `tls` or `ssh`.
    pub live_migration_scheme: String,
    /// `live_migration_with_native_tls`.
    pub live_migration_with_native_tls: bool,
    /// `live_migration_bandwidth` in MiB/s; 0 means unlimited.
    pub live_migration_bandwidth: u64,
    /// `live_migration_downtime` in milliseconds.
    pub live_migration_downtime: u64,
    /// `live_migration_downtime_steps`.
    pub live_migration_downtime_steps: u64,
    /// `live_migration_downtime_delay` in seconds per GiB.
    pub live_migration_downtime_delay: u64,
    /// `live_migration_completion_timeout` in seconds per GiB; 0 means no limit.
    pub live_migration_completion_timeout: u64,
    /// `live_migration_timeout_action`.
    pub live_migration_timeout_action: TimeoutAction,
    /// `live_migration_permit_post_copy`; ignored for guests with VFIO devices.
    pub live_migration_permit_post_copy: bool,
    /// `live_migration_permit_auto_converge`; ignored for guests with VFIO devices.
    pub live_migration_permit_auto_converge: bool,
    /// `live_migration_parallel_connections`.
    pub live_migration_parallel_connections: u32,
    /// `snapshot_image_format`. Default: the format of the disk.
    pub snapshot_image_format: Option<DiskFormat>,
    /// Directory with the keyrings of Ceph users, from which a missing libvirt secret is created.
    pub ceph: PathBuf,
    /// The host CPUs that guests without dedicated ones use (`[compute] cpu_shared_set`); all
    /// if `None`.
    pub guest_cpus: Option<Cpus>,
    /// Mount point of sysfs.
    pub sysfs: PathBuf,
}

impl Default for LibvirtConfig {
    fn default() -> Self {
        Self {
            connection_uri: "qemu:///system".to_owned(),
            virt_type: VirtType::Kvm,
            cpu_mode: None,
            cpu_models: Vec::new(),
            cpu_model_extra_flags: Vec::new(),
            machine_type: None,
            disk_bus: "virtio".to_owned(),
            disk_cache: None,
            block_cache: None,
            network_cache: None,
            num_pcie_ports: 0,
            realtime_scheduler_priority: 1,
            shutdown_timeout: Duration::from_secs(60),
            detach_timeout: Duration::from_secs(20),
            detach_attempts: 8,
            live_migration_uri: None,
            live_migration_scheme: "tcp".to_owned(),
            live_migration_with_native_tls: false,
            live_migration_bandwidth: 0,
            live_migration_downtime: 500,
            live_migration_downtime_steps: 10,
            live_migration_downtime_delay: 75,
            live_migration_completion_timeout: 800,
            live_migration_timeout_action: TimeoutAction::Abort,
            live_migration_permit_post_copy: false,
            live_migration_permit_auto_converge: false,
            live_migration_parallel_connections: 1,
            snapshot_image_format: None,
            ceph: PathBuf::from("/etc/ceph"),
            guest_cpus: None,
            sysfs: PathBuf::from("/sys"),
        }
    }
}

impl LibvirtConfig {
    /// The CPU mode in effect.
    pub fn cpu_mode(&self) -> CpuMode {
        self.cpu_mode.unwrap_or(match self.virt_type {
            VirtType::Kvm => CpuMode::HostModel,
            VirtType::Qemu => CpuMode::None,
        })
    }

    /// Checks the options. The error names the option that is wrong.
    pub fn check(&self) -> Result<(), String> {
        if self.cpu_mode == Some(CpuMode::Custom) && self.cpu_models.is_empty() {
            return Err("[libvirt] cpu_mode = custom needs cpu_models".to_owned());
        }
        if self.cpu_mode != Some(CpuMode::Custom) && !self.cpu_models.is_empty() {
            return Err("[libvirt] cpu_models needs cpu_mode = custom".to_owned());
        }
        if let Some(uri) = &self.live_migration_uri
            && uri.matches("%s").count() != 1
        {
            return Err(format!(
                "[libvirt] live_migration_uri = {uri} must contain %s exactly once, for the destination host"
            ));
        }
        if !matches!(self.live_migration_scheme.as_str(), "tcp" | "tls" | "ssh") {
            return Err(format!(
                "[libvirt] live_migration_scheme = {} must be tcp, tls or ssh",
                self.live_migration_scheme
            ));
        }
        for (name, value, require) in [
            ("live_migration_downtime", self.live_migration_downtime, 100),
            ("live_migration_downtime_steps", self.live_migration_downtime_steps, 3),
            ("live_migration_downtime_delay", self.live_migration_downtime_delay, 3),
        ] {
            if value < require {
                return Err(format!("[libvirt] {name} = {value} must be {require} or more"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_the_option() {
        let good = LibvirtConfig::default();
        assert_eq!(good.check(), Ok(()));
        assert_eq!(good.cpu_mode(), CpuMode::HostModel);
        let models = vec!["Nehalem".to_owned()];
        for (wrong, name) in [
            (LibvirtConfig { cpu_mode: Some(CpuMode::Custom), ..good.clone() }, "cpu_models"),
            (LibvirtConfig { cpu_models: models, ..good.clone() }, "cpu_mode"),
            (
                LibvirtConfig { live_migration_uri: Some("qemu+tcp://x".into()), ..good.clone() },
                "live_migration_uri",
            ),
            (
                LibvirtConfig { live_migration_scheme: "udp".into(), ..good.clone() },
                "live_migration_scheme",
            ),
            (
                LibvirtConfig { live_migration_downtime: 99, ..good.clone() },
                "live_migration_downtime",
            ),
            (
                LibvirtConfig { live_migration_downtime_steps: 2, ..good },
                "live_migration_downtime_steps",
            ),
        ] {
            let message = wrong.check().expect_err("the options are refused");
            assert!(message.contains(name), "{message}");
        }
    }
}
