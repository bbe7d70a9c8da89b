//! NVMe disks of Inspur, as Cyborg's `inspur_nvme_ssd_driver` finds them. Disks of other vendors
//! are given to guests by `[pci] device_spec`, so that no host loses a disk it did not name.

use kilonova_node_api::DeviceKind;

use super::{Host, whole};
use crate::device_spec::custom;
use crate::harvest::Harvest;

const DRIVER: &str = "inspur_nvme_ssd_driver";
const NVME: &str = "0108";

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
