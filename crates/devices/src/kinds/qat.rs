//! Intel QuickAssist, as found by Cyborg's `intel_qat_driver`, and newer cards of the family: one
//! provider per virtual function, or for the card if it has none.

use kilonova_node_api::DeviceKind;

use super::{KindInput, parts_of, whole};
use crate::collector::Collector;
use crate::device_spec::custom;

const DRIVER: &str = "intel_qat_driver";
const VENDOR: &str = "8086";
/// C62x, DH895xCC, C3xxx, D15xx, 200xx, 4xxx, 401xx, 402xx, 420xx.
const CARDS: [&str; 9] = ["37c8", "0435", "19e2", "6f54", "18ee", "4940", "4942", "4944", "4946"];

pub(crate) fn find(host: KindInput<'_>, collector: &mut Collector) {
    for card in host.bus.all().filter(|one| one.physical.is_none() && one.is(VENDOR, &CARDS)) {
        for part in parts_of(host.bus, card) {
            if collector.claim_if_free(&part.address, DRIVER) {
                let traits = vec![custom(&format!("intel_{}", card.function.product_id))];
                collector.offers.push(whole(part, DeviceKind::Qat, "CUSTOM_QAT", traits, "intel"));
            }
        }
    }
}
