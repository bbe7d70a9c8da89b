//! `[agent] enabled_drivers`: which of Cyborg's drivers look at the host.

use crate::Error;

/// A driver that looks for its kind of device on the whole host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Driver {
    /// A card that exists only on paper.
    Fake,
    /// Whole NVIDIA GPUs.
    NvidiaGpu,
    /// FPGA cards of Intel.
    IntelFpga,
    /// FPGA cards of Xilinx.
    XilinxFpga,
    /// FPGA cards of Inspur.
    InspurFpga,
    /// QuickAssist.
    IntelQat,
    /// X710 network cards.
    IntelNic,
    /// NVMe disks of Inspur.
    InspurNvme,
}

impl Driver {
    /// All of them, by upstream's names.
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

    /// Reads the option's list.
    pub fn parse(names: &str) -> Result<Vec<Self>, Error> {
        let mut drivers = Vec::new();
        for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            if name == "pci_driver" {
                return Err(Error::Driver(
                    "pci_driver is not a driver here; [pci] device_spec names PCI functions"
                        .to_owned(),
                ));
            }
            let Some((_, driver)) = Self::ALL.iter().find(|(known, _)| *known == name) else {
                let known: Vec<&str> = Self::ALL.iter().map(|(name, _)| *name).collect();
                let known = known.join(", ");
                return Err(Error::Driver(format!("{name} is no driver; known are {known}")));
            };
            if !drivers.contains(driver) {
                drivers.push(*driver);
            }
        }
        Ok(drivers)
    }
}
