//! Whole NVIDIA GPUs, as found by Cyborg's `nvidia_gpu_driver`.
//!
//! Unlike upstream, a virtual function is never a whole GPU, and a GPU that the options use for
//! vGPUs is not offered as a whole too.

use kilonova_node_api::DeviceKind;

use super::{KindInput, whole};
use crate::PciFunction;
use crate::collector::Collector;
use crate::device_spec::custom;

const DRIVER: &str = "nvidia_gpu_driver";

pub(crate) fn find(host: KindInput<'_>, collector: &mut Collector) {
    for on_bus in host.bus.all().filter(|one| one.physical.is_none()) {
        let function = &on_bus.function;
        let gpu = function.vendor_id == "10de" && matches!(function.class_code(), "0300" | "0302");
        if !gpu || has_mdevs(host, &on_bus.address) {
            continue;
        }
        if collector.claim_if_free(&on_bus.address, DRIVER) {
            let traits = vec![custom(&format!("nvidia_{}", function.product_id))];
            collector.offers.push(whole(on_bus, DeviceKind::Gpu, "PGPU", traits, "nvidia"));
        }
    }
}

/// True for 3D controllers and cards of known vendors: a plain display controller is not an
/// accelerator.
pub(crate) fn is_accelerator(function: &PciFunction) -> bool {
    function.class_code() == "0302" || matches!(&*function.vendor_id, "10de" | "1002")
}

/// True if the GPU has mediated devices.
fn has_mdevs(host: KindInput<'_>, address: &str) -> bool {
    let path = format!("bus/pci/devices/{address}");
    let names = host.sysfs.list(&path).unwrap_or_default();
    names.iter().any(|name| uuid::Uuid::try_parse(name).is_ok())
}
