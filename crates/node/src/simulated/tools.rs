//! The tools of a simulated host. Loading a bitstream changes the simulated sysfs. Cleaning only
//! returns a message, unless the operator has configured a cleaning command. The command really
//! runs, with an environment variable that marks the host as simulated.

use std::sync::Arc;

use kilonova_devices::{Cleanup, Sysfs};

use super::SimulatedSysfs;
use crate::tools::{Function, Load, ToolError, ToolFuture, Tools, hook};
use kilonova_ids::HostName;

pub(crate) struct SimulatedTools {
    pub host: HostName,
    pub sysfs: Arc<SimulatedSysfs>,
    pub cleanup: Cleanup,
}

impl Tools for SimulatedTools {
    fn load<'a>(&'a self, load: Load<'a>) -> ToolFuture<'a> {
        Box::pin(async move {
            let function = load.bitstream.function.as_deref();
            self.sysfs
                .load(load.device, function)
                .map_err(|error| ToolError::new(format!("{}: {error}", load.device)))?;
            Ok(format!("simulated loading of {}", load.file.display()))
        })
    }

    fn clean<'a>(&'a self, function: Function<'a>) -> ToolFuture<'a> {
        Box::pin(async move {
            let address = function.address;
            if let Some(hook) = hook(&self.host, &self.cleanup, function, true) {
                return hook.wait().await;
            }
            if !self.sysfs.exists(&format!("bus/pci/devices/{address}")) {
                return Err(ToolError::new(format!("no PCI function {address} on this host")));
            }
            Ok(format!("simulated cleaning of {address}"))
        })
    }
}
