//! The kind of a port's interface (Neutron's `binding:vnic_type`).
//!
//! Defines the kinds that a Linux bridge or a passed-through function can provide. A port's body
//! stores the name, which is parsed when its row is read; an unknown name is an error.

use kilonova_store::Error;
use serde_json::Value;

use crate::record::Body;

/// The kind of a port's interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VnicType {
    /// A tap device on a bridge.
    #[default]
    Normal,
    /// A virtual function.
    Direct,
    /// A macvtap device on a virtual function.
    Macvtap,
    /// A physical function.
    DirectPhysical,
    /// A function of an accelerator that a device profile requests.
    AcceleratorDirect,
}

impl VnicType {
    /// All kinds.
    pub(crate) const ALL: [Self; 5] =
        [Self::Normal, Self::Direct, Self::Macvtap, Self::DirectPhysical, Self::AcceleratorDirect];

    /// Neutron's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Direct => "direct",
            Self::Macvtap => "macvtap",
            Self::DirectPhysical => "direct-physical",
            Self::AcceleratorDirect => "accelerator-direct",
        }
    }

    /// The kind with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// The kind in a port's body; a body without one has the default.
    pub(crate) fn of(body: &Body) -> Result<Self, Error> {
        let name = match body.get("binding:vnic_type") {
            None | Some(Value::Null) => return Ok(Self::default()),
            Some(name) => name.as_str(),
        };
        let found = name.and_then(Self::parse);
        found.ok_or_else(|| Error::Shape(format!("binding:vnic_type {name:?}")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(body: &Value) -> Option<VnicType> {
        VnicType::of(body.as_object().expect("an object")).ok()
    }

    #[test]
    fn a_body_has_a_known_kind_or_the_default() {
        for kind in VnicType::ALL {
            assert_eq!(of(&json!({"binding:vnic_type": kind.as_str()})), Some(kind));
        }
        assert_eq!(of(&json!({})), Some(VnicType::Normal));
        assert_eq!(of(&json!({"binding:vnic_type": "vhost"})), None);
    }
}
