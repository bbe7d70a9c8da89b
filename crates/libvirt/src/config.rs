//! The options, by the names that operators know from `nova.conf`, `[libvirt]`.

use std::path::PathBuf;
use std::time::Duration;

use kilonova_node_api::DiskFormat;

/// What runs guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VirtType {
    /// The processor does.
    Kvm,
    /// QEMU plays the processor.
    Qemu,
}

impl VirtType {
    /// `kvm` or `qemu`, as domain XML has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Qemu => "qemu",
        }
    }
}

/// What processor a guest sees (`cpu_mode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuMode {
    /// One much like the host's.
    HostModel,
    /// The host's own.
    HostPassthrough,
    /// The first of `cpu_models` that the host can be.
    Custom,
    /// Whatever QEMU gives.
    None,
}

/// What becomes of a guest that takes too long to another host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeoutAction {
    /// It stays.
    Abort,
    /// It stands still until it is there.
    ForceComplete,
}

/// Options of the driver.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Where libvirt is (`connection_uri`).
    pub connection_uri: String,
    /// `virt_type`.
    pub virt_type: VirtType,
    /// `cpu_mode`; without, `host-model` for KVM and `none` for QEMU.
    pub cpu_mode: Option<CpuMode>,
    /// `cpu_models`.
    pub cpu_models: Vec<String>,
    /// `cpu_model_extra_flags`: `pcid`, `+vmx`, `-mtrr`.
    pub cpu_model_extra_flags: Vec<String>,
    /// `hw_machine_type` for images that do not say one; without, `q35`.
    pub machine_type: Option<String>,
    /// Bus of disks for images that do not say one.
    pub disk_bus: String,
    /// `disk_cachemodes` for files: `none`, `writeback`, `unsafe`, …
    pub disk_cache: Option<String>,
    /// `num_pcie_ports`: places to plug devices into; with 0 libvirt makes those that are needed.
    pub num_pcie_ports: u32,
    /// How long a guest may take to shut itself off (`shutdown_timeout`).
    pub shutdown_timeout: Duration,
    /// How long a guest may take to let go of a device (`device_detach_timeout`, times
    /// `device_detach_attempts`).
    pub detach_timeout: Duration,
    /// How often it is asked to (`device_detach_attempts`).
    pub detach_attempts: u32,
    /// `live_migration_uri`, with `%s` for the other host; without, made of the scheme.
    pub live_migration_uri: Option<String>,
    /// `live_migration_scheme`: `tcp` or `tls`, for the URI that is not given.
    pub live_migration_scheme: String,
    /// `live_migration_with_native_tls`.
    pub live_migration_with_native_tls: bool,
    /// `live_migration_bandwidth`, MiB a second; 0 is no limit.
    pub live_migration_bandwidth: u64,
    /// `live_migration_downtime`, milliseconds.
    pub live_migration_downtime: u64,
    /// `live_migration_downtime_steps`.
    pub live_migration_downtime_steps: u64,
    /// `live_migration_downtime_delay`, seconds for each GiB.
    pub live_migration_downtime_delay: u64,
    /// `live_migration_completion_timeout`, seconds for each GiB; 0 is for ever.
    pub live_migration_completion_timeout: u64,
    /// `live_migration_timeout_action`.
    pub live_migration_timeout_action: TimeoutAction,
    /// `live_migration_permit_post_copy`; never with VFIO devices.
    pub live_migration_permit_post_copy: bool,
    /// `live_migration_permit_auto_converge`; never with VFIO devices.
    pub live_migration_permit_auto_converge: bool,
    /// `live_migration_parallel_connections`.
    pub live_migration_parallel_connections: u32,
    /// `snapshot_image_format`; without, the format of the disk.
    pub snapshot_image_format: Option<DiskFormat>,
    /// Where sysfs is.
    pub sysfs: PathBuf,
}

impl Default for Config {
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
            num_pcie_ports: 0,
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
            sysfs: PathBuf::from("/sys"),
        }
    }
}

impl Config {
    /// The mode in effect.
    pub fn cpu_mode(&self) -> CpuMode {
        self.cpu_mode.unwrap_or(match self.virt_type {
            VirtType::Kvm => CpuMode::HostModel,
            VirtType::Qemu => CpuMode::None,
        })
    }

    /// What contradicts itself or cannot be.
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
                "[libvirt] live_migration_uri = {uri} must have %s once, where the other host goes"
            ));
        }
        if !matches!(self.live_migration_scheme.as_str(), "tcp" | "tls" | "ssh") {
            return Err(format!(
                "[libvirt] live_migration_scheme = {} is none of tcp, tls and ssh",
                self.live_migration_scheme
            ));
        }
        for (name, value, least) in [
            ("live_migration_downtime", self.live_migration_downtime, 100),
            ("live_migration_downtime_steps", self.live_migration_downtime_steps, 3),
            ("live_migration_downtime_delay", self.live_migration_downtime_delay, 3),
        ] {
            if value < least {
                return Err(format!("[libvirt] {name} = {value} must be {least} or more"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_refused_by_its_name() {
        let good = Config::default();
        assert_eq!(good.check(), Ok(()));
        assert_eq!(good.cpu_mode(), CpuMode::HostModel);
        let models = vec!["Nehalem".to_owned()];
        for (wrong, name) in [
            (Config { cpu_mode: Some(CpuMode::Custom), ..good.clone() }, "cpu_models"),
            (Config { cpu_models: models, ..good.clone() }, "cpu_mode"),
            (
                Config { live_migration_uri: Some("qemu+tcp://x".into()), ..good.clone() },
                "live_migration_uri",
            ),
            (
                Config { live_migration_scheme: "udp".into(), ..good.clone() },
                "live_migration_scheme",
            ),
            (Config { live_migration_downtime: 99, ..good.clone() }, "live_migration_downtime"),
            (Config { live_migration_downtime_steps: 2, ..good }, "live_migration_downtime_steps"),
        ] {
            let said = wrong.check().expect_err("refused");
            assert!(said.contains(name), "{said}");
        }
    }
}
