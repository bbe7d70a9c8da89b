//! The connector of the host: its properties for Cinder.

use std::path::Path;

use kilonova_node_api::Connector;

use crate::config::{IscsiInitiator, VolumesConfig};
use crate::system::System;

/// The file with the name of the host's iSCSI initiator.
const INITIATOR: &str = "/etc/iscsi/initiatorname.iscsi";

/// The connector. Omits properties that the host does not have.
pub(crate) fn connector(system: &dyn System, config: &VolumesConfig, multipath: bool) -> Connector {
    let line = |path: &str| {
        let text = system.read(Path::new(path)).ok()?;
        Some(text.trim().to_owned()).filter(|text| is_word(text))
    };
    Connector {
        host: config.host.clone(),
        ip: Some(config.address.clone()).filter(|address| !address.is_empty()),
        platform: Some(std::env::consts::ARCH.to_owned()),
        os_type: Some(std::env::consts::OS.to_owned()),
        initiator: initiator(system),
        multipath: multipath && config.iscsi == IscsiInitiator::Kernel,
        enforce_multipath: config.enforce_multipath,
        do_local_attach: false,
        nqn: line("/etc/nvme/hostnqn"),
        nvme_hostid: line("/etc/nvme/hostid"),
        nvme_native_multipath: line("/sys/module/nvme_core/parameters/multipath")
            .map(|value| value == "Y"),
        system_uuid: line("/sys/class/dmi/id/product_uuid"),
        wwpns: Vec::new(),
        wwnns: Vec::new(),
    }
}

/// The name of the host's iSCSI initiator.
pub(crate) fn initiator(system: &dyn System) -> Option<String> {
    let text = system.read(Path::new(INITIATOR)).ok()?;
    let name = text.lines().find_map(|line| line.trim().strip_prefix("InitiatorName="))?;
    Some(name.trim().to_owned()).filter(|name| is_word(name))
}

fn is_word(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 255
        && !text.chars().any(|c| c.is_whitespace() || c.is_control())
}
