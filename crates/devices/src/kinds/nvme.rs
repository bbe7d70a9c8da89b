//! NVMe disks: those of Inspur, as found by Cyborg's `inspur_nvme_ssd_driver`, and those named by
//! `[nvme] device_spec`. No other disk is ever offered.

use kilonova_node_api::DeviceKind;

use super::{KindInput, whole};
use crate::collector::{Collector, DeviceProblem};
use crate::device_spec::custom;
use crate::{MatchOf, NvmeSpec};

const DRIVER: &str = "inspur_nvme_ssd_driver";
const NVME: &str = "0108";

const OPTION: &str = "[nvme] device_spec";

/// The functions that the option names, one provider each.
pub(crate) fn listed(specs: &[NvmeSpec], host: KindInput<'_>, collector: &mut Collector) {
    let mut matched = vec![false; specs.len()];
    for disk in host.bus.all() {
        let function = &disk.function;
        let wanted = MatchOf {
            vendor_id: &function.vendor_id,
            product_id: &function.product_id,
            address: disk.place,
            physical: disk.physical,
        };
        let Some(at) = specs.iter().position(|spec| spec.matches(&wanted)) else { continue };
        if function.class_code() != NVME {
            continue;
        }
        matched[at] = true;
        if collector.claim(&disk.address, OPTION) {
            let product = format!("nvme_{}_{}", function.vendor_id, function.product_id);
            let traits = vec![custom(&product)];
            collector.offers.push(whole(disk, DeviceKind::Ssd, "CUSTOM_NVME", traits, "nvme"));
        }
    }
    for (spec, _) in specs.iter().zip(&matched).filter(|(_, matched)| !**matched) {
        let reason = format!("{OPTION}: it matches no NVMe function of this host");
        collector.problems.push(DeviceProblem::note(&spec.to_string(), reason));
    }
}

pub(crate) fn find(host: KindInput<'_>, collector: &mut Collector) {
    for disk in host.bus.all() {
        let function = &disk.function;
        if function.vendor_id == "1bd4"
            && function.class_code() == NVME
            && collector.claim_if_free(&disk.address, DRIVER)
        {
            let traits = vec![
                custom("ssd_inspur"),
                custom(&format!("ssd_product_id_{}", function.product_id)),
            ];
            collector.offers.push(whole(disk, DeviceKind::Ssd, "CUSTOM_SSD", traits, "inspur"));
        }
    }
}
