//! The links of a hybrid plug: a bridge for one tap, and a veth pair to Open vSwitch. Pure.
//!
//! Neutron's agent filters a tap's packets with iptables, which sees the packets of a Linux bridge but not those
//! of Open vSwitch. The agent expects the names and the layout of os-vif.

use super::Links;
use super::plan::Steps;
use crate::nets::HybridPlug;

impl HybridPlug {
    /// The names of its links.
    pub fn names(&self) -> [String; 3] {
        let (inner, outer) = self.interface.hybrid_pair();
        [self.interface.hybrid_bridge(), inner, outer]
    }
}

/// The steps for one plug, except for its port in Open vSwitch.
pub(super) fn one(plug: &HybridPlug, there: &Links) -> Result<Vec<Vec<String>>, String> {
    let [bridge, inner, outer] = plug.names();
    let mtu = plug.interface.mtu;
    let mut steps = Steps::new(there);
    steps.bridge(&bridge, mtu)?;
    steps.veth(&inner, &outer, mtu)?;
    steps.plug(&inner, &bridge);
    for name in [&outer, &bridge] {
        steps.up(name);
    }
    let tap = plug.interface.tap();
    if there.get(&tap).is_some_and(|link| link.master.is_none()) {
        steps.push(&["link", "set", "dev", &tap, "master", &bridge]);
    }
    Ok(steps.into_list())
}

/// True if a guest still uses the plug with this port in Open vSwitch: its bridge has a link that is not ours.
pub(crate) fn is_used(outer: &str, there: &Links) -> bool {
    let bridge = outer.strip_prefix("qvo").map(|id| format!("qbr{id}"));
    there.values().any(|link| link.master.is_some() && link.master == bridge && !link.is_ours())
}
