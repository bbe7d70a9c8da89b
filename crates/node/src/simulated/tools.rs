//! The tools of a simulated host: a bitstream changes what its sysfs shows, a disk is cleared by
//! saying so. A clean-up command that the operator names is run for real, and told that the host is
//! simulated.

use std::sync::Arc;

use kilonova_devices::{Cleanup, Sysfs};

use super::SimulatedSysfs;
use crate::tools::{Doing, Function, Load, Tools, Unfit, hook};

pub(crate) struct Pretence {
    pub host: String,
    pub sysfs: Arc<SimulatedSysfs>,
    pub cleanup: Cleanup,
}

impl Tools for Pretence {
    fn load<'a>(&'a self, load: Load<'a>) -> Doing<'a> {
        Box::pin(async move {
            let function = load.bitstream.function.as_deref();
            self.sysfs
                .load(load.device, function)
                .map_err(|error| Unfit::new(format!("{}: {error}", load.device)))?;
            Ok(format!("pretended to load {}", load.file.display()))
        })
    }

    fn clean<'a>(&'a self, function: Function<'a>) -> Doing<'a> {
        Box::pin(async move {
            let address = function.address;
            if let Some(hook) = hook(&self.host, &self.cleanup, function, true) {
                return hook.wait().await;
            }
            if !self.sysfs.exists(&format!("bus/pci/devices/{address}")) {
                return Err(Unfit::new(format!("there is no PCI function {address} on this host")));
            }
            Ok(format!("pretended to clear {address}"))
        })
    }
}
