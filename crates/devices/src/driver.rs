//! `[agent] enabled_drivers`: the Cyborg drivers that search the host.

use crate::Error;

/// A driver that searches the host for its kind of device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Driver {
    /// A fake device.
    Fake,
    /// Whole NVIDIA GPUs.
    NvidiaGpu,
    /// Intel FPGA cards.
    IntelFpga,
    /// Xilinx FPGA cards.
    XilinxFpga,
    /// Inspur FPGA cards.
    InspurFpga,
    /// QuickAssist.
    IntelQat,
    /// Intel X710 network cards.
    IntelNic,
    /// Inspur NVMe disks.
    InspurNvme,
}

impl Driver {
    /// All drivers, by upstream's names.
    pub const ALL: [(&'static str, Self); 8] = [
        ("fake_driver", Self::Fake),
        ("nvidia_gpu_driver", Self::NvidiaGpu),
        ("intel_fpga_driver", Self::IntelFpga),
        ("xilinx_fpga_driver", Self::XilinxFpga),
        ("inspur_fpga_driver", Self::InspurFpga),
        ("intel_qat_driver", Self::IntelQat),
        ("intel_nic_driver", Self::IntelNic),
        ("inspur_nvme_ssd_driver", Self::InspurNvme),
    ];

    /// Parses the option's list.
    pub fn parse(names: &str) -> Result<Vec<Self>, Error> {
        let mut drivers = Vec::new();
        for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            if name == "pci_driver" {
                return Err(Error::Driver(
                    "pci_driver is not supported; use [pci] device_spec for PCI functions"
                        .to_owned(),
                ));
            }
            let Some((_, driver)) = Self::ALL.iter().find(|(known, _)| *known == name) else {
                let known: Vec<&str> = Self::ALL.iter().map(|(name, _)| *name).collect();
                let known = known.join(", ");
                return Err(Error::Driver(format!(
                    "unknown driver {name}; known drivers: {known}"
                )));
            };
            if !drivers.contains(driver) {
                drivers.push(*driver);
            }
        }
        Ok(drivers)
    }
}
