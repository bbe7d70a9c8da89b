//! What the host's libvirt, QEMU and kernel are, and what follows from it.

use std::path::Path;

use kilonova_hypervisor::About;
use kilonova_node_api::{Machine, VARIANT_LIVE_MIGRATION, VGPU_LIVE_MIGRATION};
use virt::connect::Connect;
use virt::error::Error as VirtError;

use crate::config::{Config, CpuMode};
use crate::xml::{self, Host};

const MDEV_LIBVIRT: i64 = 7_008_000;
const VGPU_LIBVIRT: i64 = 8_006_000;
const VGPU_QEMU: i64 = 8_001_000;
const VGPU_KERNEL: i64 = 5_018_000;
const VARIANT_LIBVIRT: i64 = 10_000_000;
const VARIANT_QEMU: i64 = 8_002_002;

/// Versions, each as major * 1000000 + minor * 1000 + release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versions {
    /// `QEMU`.
    pub kind: String,
    /// libvirtd's.
    pub libvirt: i64,
    /// QEMU's.
    pub hypervisor: i64,
    /// The kernel's.
    pub kernel: i64,
    /// Whether `mdevctl` is there, by which libvirt keeps mediated devices.
    pub mdevctl: bool,
}

impl Versions {
    /// A version as people write it.
    pub fn text(&self, version: i64) -> String {
        format!("{}.{}.{}", version / 1_000_000, version / 1000 % 1000, version % 1000)
    }

    /// Whether libvirt can keep mediated devices; if not, why.
    pub fn keeps_mdevs(&self) -> Result<(), String> {
        if self.libvirt < MDEV_LIBVIRT {
            let (have, need) = (self.text(self.libvirt), self.text(MDEV_LIBVIRT));
            return Err(format!("libvirt is {have}; {need} or newer keeps mediated devices"));
        }
        if !self.mdevctl {
            return Err("mdevctl is missing: apt-get install mdevctl".to_owned());
        }
        Ok(())
    }

    /// Whether a running guest can take mediated devices along to another host; if not, why.
    pub fn moves_mdevs(&self) -> Result<(), String> {
        self.least(VGPU_LIBVIRT, VGPU_QEMU, VGPU_KERNEL, "mediated devices")
    }

    /// The same of functions with a driver of their kind (`managed` no).
    pub fn moves_functions(&self) -> Result<(), String> {
        self.least(VARIANT_LIBVIRT, VARIANT_QEMU, VGPU_KERNEL, "functions with a variant driver")
    }

    fn least(&self, libvirt: i64, qemu: i64, kernel: i64, what: &str) -> Result<(), String> {
        for (name, have, need) in [
            ("libvirt", self.libvirt, libvirt),
            ("QEMU", self.hypervisor, qemu),
            ("the kernel", self.kernel, kernel),
        ] {
            if have < need {
                let (have, need) = (self.text(have), self.text(need));
                return Err(format!(
                    "{name} is {have}; running guests take {what} along from {need} on"
                ));
            }
        }
        Ok(())
    }

    pub(crate) fn about(&self) -> About {
        let mut traits = Vec::new();
        if self.moves_mdevs().is_ok() {
            traits.push(VGPU_LIVE_MIGRATION.to_owned());
        }
        if self.moves_functions().is_ok() {
            traits.push(VARIANT_LIVE_MIGRATION.to_owned());
        }
        About { hypervisor_type: self.kind.clone(), version: self.hypervisor, traits }
    }
}

/// Asks libvirt what it is and what guests of the options can be. The inner error is for people.
pub(crate) fn probe(
    connect: &Connect,
    config: &Config,
) -> Result<Result<(Versions, Host), String>, VirtError> {
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
    let mut host = Host {
        config: config.clone(),
        arch: std::env::consts::ARCH.to_owned(),
        emulator: None,
        cpu_model: None,
    };
    if versions.kind != "QEMU" {
        host.cpu_model = config.cpu_models.first().cloned();
        return Ok(Ok((versions, host)));
    }
    let machine = Machine::default();
    let kind = xml::kind(&host, &machine).to_owned();
    let virt_type = config.virt_type.as_str();
    let able =
        connect.get_domain_capabilities(None, Some(&host.arch), Some(&kind), Some(virt_type), 0);
    let able = match able {
        Ok(able) => able,
        Err(error) => {
            return Ok(Err(format!(
                "[libvirt] virt_type = {virt_type} with machine type {kind} is not to be had here: \
                 {}. For kvm, /dev/kvm must be there (`modprobe kvm_intel` or `kvm_amd`, and \
                 virtualization on in the firmware); without it, virt_type = qemu is slow and works",
                error.message()
            )));
        }
    };
    if config.cpu_mode() == CpuMode::Custom {
        let usable = xml::usable_models(&able);
        let model = config.cpu_models.iter().find(|model| usable.contains(model));
        let Some(model) = model else {
            return Ok(Err(format!(
                "[libvirt] cpu_models = {}: this host can be none of them; it can be {}",
                config.cpu_models.join(","),
                usable.join(", ")
            )));
        };
        host.cpu_model = Some(model.clone());
    }
    Ok(Ok((versions, host)))
}

/// `6.12.95+deb12-amd64` as a number.
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
    fn what_follows_from_versions() {
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
        assert_eq!(new.about().traits, [VGPU_LIVE_MIGRATION, VARIANT_LIVE_MIGRATION]);
        assert_eq!((new.keeps_mdevs(), new.moves_functions()), (Ok(()), Ok(())));
        let bookworm = Versions { libvirt: 9_000_000, hypervisor: 7_002_000, ..new.clone() };
        assert_eq!(bookworm.about().traits, Vec::<String>::new());
        assert!(bookworm.moves_mdevs().is_err_and(|why| why.contains("QEMU is 7.2.0")));
        assert_eq!(bookworm.keeps_mdevs(), Ok(()));
        let between = Versions { libvirt: 9_009_000, ..new.clone() };
        assert_eq!(between.moves_mdevs(), Ok(()));
        assert_eq!(between.about().traits, [VGPU_LIVE_MIGRATION]);
        assert!(between.moves_functions().is_err_and(|why| why.contains("libvirt is 9.9.0")));
        let old = Versions { kernel: 5_017_000, ..new.clone() };
        assert!(old.moves_mdevs().is_err_and(|why| why.contains("kernel")));
        let bare = Versions { mdevctl: false, ..new };
        assert!(bare.keeps_mdevs().is_err_and(|why| why.contains("mdevctl")));
    }
}
