//! Whole NVIDIA GPUs, as Cyborg's `nvidia_gpu_driver` finds them.
//!
//! Unlike upstream, a virtual function is never a whole GPU, and a GPU that is cut into vGPUs by the
//! options is not offered whole beside them.

use kilonova_node_api::DeviceKind;

use super::{Host, whole};
use crate::device_spec::custom;
use crate::harvest::Harvest;

const DRIVER: &str = "nvidia_gpu_driver";

pub(crate) fn find(host: Host<'_>, harvest: &mut Harvest) {
    for on_bus in host.bus.all().filter(|one| one.physical.is_none()) {
        let function = &on_bus.function;
        let gpu = function.vendor_id == "10de" && matches!(function.class_code(), "0300" | "0302");
        if !gpu || is_cut(host, &on_bus.address) {
            continue;
        }
        if harvest.claim_quietly(&on_bus.address, DRIVER) {
            let traits = vec![custom(&format!("nvidia_{}", function.product_id))];
            harvest.offers.push(whole(on_bus, DeviceKind::Gpu, "PGPU", traits, "nvidia"));
        }
    }
}

/// Whether mediated devices exist on the GPU.
fn is_cut(host: Host<'_>, address: &str) -> bool {
    let path = format!("bus/pci/devices/{address}");
    let names = host.sysfs.list(&path).unwrap_or_default();
    names.iter().any(|name| uuid::Uuid::try_parse(name).is_ok())
}
