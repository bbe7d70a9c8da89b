//! NVMe disks: those of Inspur, as Cyborg's `inspur_nvme_ssd_driver` finds them, and those that
//! `[nvme] device_spec` names, so that no host loses a disk it did not name.

use kilonova_node_api::DeviceKind;

use super::{Host, whole};
use crate::device_spec::custom;
use crate::harvest::{Harvest, Trouble};
use crate::{MatchOf, NvmeSpec};

const DRIVER: &str = "inspur_nvme_ssd_driver";
const NVME: &str = "0108";

const OPTION: &str = "[nvme] device_spec";

/// The functions that the option names, one provider each.
pub(crate) fn listed(specs: &[NvmeSpec], host: Host<'_>, harvest: &mut Harvest) {
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
        if harvest.claim(&disk.address, OPTION) {
            let product = format!("nvme_{}_{}", function.vendor_id, function.product_id);
            let traits = vec![custom(&product)];
            harvest.offers.push(whole(disk, DeviceKind::Ssd, "CUSTOM_NVME", traits, "nvme"));
        }
    }
    for (spec, _) in specs.iter().zip(&matched).filter(|(_, matched)| !**matched) {
        let reason = format!("{OPTION}: no NVMe function of this host is named by it");
        harvest.troubles.push(Trouble::note(&spec.to_string(), reason));
    }
}

pub(crate) fn find(host: Host<'_>, harvest: &mut Harvest) {
    for disk in host.bus.all() {
        let function = &disk.function;
        if function.vendor_id == "1bd4"
            && function.class_code() == NVME
            && harvest.claim_quietly(&disk.address, DRIVER)
        {
            let traits = vec![
                custom("ssd_inspur"),
                custom(&format!("ssd_product_id_{}", function.product_id)),
            ];
            harvest.offers.push(whole(disk, DeviceKind::Ssd, "CUSTOM_SSD", traits, "inspur"));
        }
    }
}
