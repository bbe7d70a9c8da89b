//! Versions of libvirt, QEMU and the kernel, and the features that follow from them.

use std::collections::BTreeSet;
use std::path::Path;

use kilonova_hypervisor::HypervisorInfo;
use kilonova_node_api::{VARIANT_LIVE_MIGRATION, VGPU_LIVE_MIGRATION};
use virt::connect::Connect;
use virt::error::Error as VirtError;

use crate::config::{CpuMode, LibvirtConfig};
use crate::xml::{self, HostProfile};

const MDEV_LIBVIRT: i64 = 7_008_000;
const VGPU_LIBVIRT: i64 = 8_006_000;
const VGPU_QEMU: i64 = 8_001_000;
const VGPU_KERNEL: i64 = 5_018_000;
const VARIANT_LIBVIRT: i64 = 10_000_000;
const VARIANT_QEMU: i64 = 8_002_002;

/// Versions, each packed as major * 1000000 + minor * 1000 + release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versions {
    /// The hypervisor's type: `QEMU`.
    pub kind: String,
    /// libvirtd's version.
    pub libvirt: i64,
    /// QEMU's version.
    pub hypervisor: i64,
    /// The kernel's version.
    pub kernel: i64,
    /// True if `mdevctl` is installed; libvirt needs it for persistent mediated devices.
    pub mdevctl: bool,
}

impl Versions {
    /// A version in dotted form.
    pub fn dotted(&self, version: i64) -> String {
        format!("{}.{}.{}", version / 1_000_000, version / 1000 % 1000, version % 1000)
    }

    /// Checks that libvirt can persist mediated devices; the error is the reason why not.
    pub fn supports_mdevs(&self) -> Result<(), String> {
        if self.libvirt < MDEV_LIBVIRT {
            let (have, need) = (self.dotted(self.libvirt), self.dotted(MDEV_LIBVIRT));
            return Err(format!(
                "libvirt is {have}; persistent mediated devices need {need} or newer"
            ));
        }
        if !self.mdevctl {
            return Err("mdevctl is missing: apt-get install mdevctl".to_owned());
        }
        Ok(())
    }

    /// Checks that live migration supports mediated devices; the error is the reason why not.
    pub fn migrates_mdevs(&self) -> Result<(), String> {
        self.require(VGPU_LIBVIRT, VGPU_QEMU, VGPU_KERNEL, "mediated devices")
    }

    /// Checks that live migration supports functions with a vendor's VFIO variant driver
    /// (`managed='no'`).
    pub fn migrates_functions(&self) -> Result<(), String> {
        self.require(VARIANT_LIBVIRT, VARIANT_QEMU, VGPU_KERNEL, "functions with a variant driver")
    }

    fn require(&self, libvirt: i64, qemu: i64, kernel: i64, what: &str) -> Result<(), String> {
        for (name, have, need) in [
            ("libvirt", self.libvirt, libvirt),
            ("QEMU", self.hypervisor, qemu),
            ("the kernel", self.kernel, kernel),
        ] {
            if have < need {
                let (have, need) = (self.dotted(have), self.dotted(need));
                return Err(format!(
                    "{name} is {have}; live migration of {what} needs {need} or newer"
                ));
            }
        }
        Ok(())
    }

    pub(crate) fn info(&self) -> HypervisorInfo {
        let mut traits = Vec::new();
        if self.migrates_mdevs().is_ok() {
            traits.push(VGPU_LIVE_MIGRATION.to_owned());
        }
        if self.migrates_functions().is_ok() {
            traits.push(VARIANT_LIVE_MIGRATION.to_owned());
        }
        HypervisorInfo { hypervisor_type: self.kind.clone(), version: self.hypervisor, traits }
    }
}

/// Reads the versions, and checks that this host can run guests with these options. The inner error
/// is for the operator.
pub(crate) fn probe(
    connect: &Connect,
    config: &LibvirtConfig,
) -> Result<Result<(Versions, HostProfile), String>, VirtError> {
    let versions = Versions {
        kind: connect.get_type()?,
        libvirt: connect.get_lib_version()?.into(),
        hypervisor: connect.get_hyp_version()?.into(),
        kernel: kernel(&std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default()),
        mdevctl: [
            "/usr/sbin/mdevctl",
            "/usr/bin/mdevctl",
            "/sbin/mdevctl",
            "/usr/local/sbin/mdevctl",
        ]
        .into_iter()
        .any(|path| Path::new(path).exists()),
    };
    let mut host = HostProfile {
        config: config.clone(),
        arch: std::env::consts::ARCH.to_owned(),
        emulator: None,
        cpu_model: None,
        secure_boot: false,
        machine_types: BTreeSet::new(),
    };
    if versions.kind != "QEMU" {
        host.cpu_model = config.cpu_models.first().cloned();
        return Ok(Ok((versions, host)));
    }
    let kind = xml::usual_machine_type(&host).to_owned();
    let virt_type = config.virt_type.as_str();
    let capabilities =
        connect.get_domain_capabilities(None, Some(&host.arch), Some(&kind), Some(virt_type), 0);
    let capabilities = match capabilities {
        Ok(capabilities) => capabilities,
        Err(error) => {
            return Ok(Err(format!(
                "[libvirt] virt_type = {virt_type} with machine type {kind} is not available: \
                 {}. kvm needs /dev/kvm (`modprobe kvm_intel` or `kvm_amd`, and \
                 virtualization on in the firmware); without it use virt_type = qemu, which is slow",
                error.message()
            )));
        }
    };
    host.machine_types = xml::machine_types(&connect.get_capabilities()?, &host.arch);
    host.secure_boot = xml::has_secure_boot(&capabilities);
    if !host.secure_boot && host.arch == "x86_64" && !kind.contains("q35") {
        // Only this machine type has secure boot.
        let q35 = connect.get_domain_capabilities(
            None,
            Some(&host.arch),
            Some("q35"),
            Some(virt_type),
            0,
        );
        host.secure_boot = q35.is_ok_and(|capabilities| xml::has_secure_boot(&capabilities));
    }
    if config.cpu_mode() == CpuMode::Custom {
        let usable = xml::usable_models(&capabilities);
        let model = config.cpu_models.iter().find(|model| usable.contains(model));
        let Some(model) = model else {
            return Ok(Err(format!(
                "[libvirt] cpu_models = {}: this host supports none of them; it supports {}",
                config.cpu_models.join(","),
                usable.join(", ")
            )));
        };
        host.cpu_model = Some(model.clone());
    }
    Ok(Ok((versions, host)))
}

/// Packs a kernel release such as `6.12.95+deb12-amd64`.
fn kernel(release: &str) -> i64 {
    let numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<i64>());
    let mut numbers = numbers.map(|number| number.unwrap_or_default().min(999));
    let mut next = || numbers.next().unwrap_or_default();
    next() * 1_000_000 + next() * 1000 + next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_follow_from_versions() {
        assert_eq!(kernel("6.12.95+deb12-amd64\n"), 6_012_095);
        assert_eq!(kernel("5.18-rc1"), 5_018_000);
        assert_eq!(kernel(""), 0);
        let new = Versions {
            kind: "QEMU".into(),
            libvirt: 11_003_000,
            hypervisor: 10_000_002,
            kernel: 6_012_095,
            mdevctl: true,
        };
        assert_eq!(new.info().traits, [VGPU_LIVE_MIGRATION, VARIANT_LIVE_MIGRATION]);
        assert_eq!((new.supports_mdevs(), new.migrates_functions()), (Ok(()), Ok(())));
        let bookworm = Versions { libvirt: 9_000_000, hypervisor: 7_002_000, ..new.clone() };
        assert_eq!(bookworm.info().traits, Vec::<String>::new());
        assert!(bookworm.migrates_mdevs().is_err_and(|why| why.contains("QEMU is 7.2.0")));
        assert_eq!(bookworm.supports_mdevs(), Ok(()));
        let between = Versions { libvirt: 9_009_000, ..new.clone() };
        assert_eq!(between.migrates_mdevs(), Ok(()));
        assert_eq!(between.info().traits, [VGPU_LIVE_MIGRATION]);
        assert!(between.migrates_functions().is_err_and(|why| why.contains("libvirt is 9.9.0")));
        let old = Versions { kernel: 5_017_000, ..new.clone() };
        assert!(old.migrates_mdevs().is_err_and(|why| why.contains("kernel")));
        let bare = Versions { mdevctl: false, ..new };
        assert!(bare.supports_mdevs().is_err_and(|why| why.contains("mdevctl")));
    }
}
