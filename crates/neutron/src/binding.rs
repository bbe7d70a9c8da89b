//! The bindings of a port to hosts, one of which is active. A live migration adds a binding to the
//! destination ([`BindingExtended`](crate::Extension::BindingExtended)).

use http::Method;
use kilonova_ids::PortId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::values::{Query, or_default};
use crate::{Call, Error, Neutron, Profile};

/// A binding of a port to a host.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Binding {
    /// The host.
    pub host: String,
    /// Active or not.
    pub status: BindingStatus,
    /// `ovs`, `hw_veb`, …; `unbound` for an inactive binding that was active.
    #[serde(default, deserialize_with = "or_default")]
    pub vif_type: String,
    /// The details of the port's connection on the host.
    #[serde(default, deserialize_with = "or_default")]
    pub vif_details: Map<String, Value>,
    /// `normal`, `direct`, ….
    #[serde(default)]
    pub vnic_type: String,
    /// The profile on this host.
    #[serde(default, deserialize_with = "or_default")]
    pub profile: Profile,
}

/// The status of a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum BindingStatus {
    /// The port is connected there.
    Active,
    /// The port is prepared there.
    Inactive,
}

/// A binding to create.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NewBinding {
    /// The host.
    pub host: String,
    /// The kind of the port's interface.
    pub vnic_type: String,
    /// The profile on this host.
    pub profile: Profile,
}

impl Neutron {
    /// Prepares a port on another host.
    ///
    /// # Errors
    /// [`PortBindingError`](crate::Type::PortBindingError), with status 500, if no mechanism driver can bind the port
    /// there, and [`PortBindingAlreadyExists`](crate::Type::PortBindingAlreadyExists).
    pub async fn create_binding(
        &self,
        call: Call<'_>,
        port: PortId,
        binding: &NewBinding,
    ) -> Result<Binding, Error> {
        let path = format!("/ports/{port}/bindings");
        self.one(call, Method::POST, &path, Some(json!({"binding": binding})), "binding").await
    }

    /// The bindings of a port.
    ///
    /// # Errors
    /// Neutron's errors.
    pub async fn bindings(&self, call: Call<'_>, port: PortId) -> Result<Vec<Binding>, Error> {
        self.list(call, &format!("/ports/{port}/bindings"), "bindings", &Query::default()).await
    }

    /// Makes a binding the active one. The other one becomes inactive, and the port is `DOWN` until the
    /// host has connected it.
    ///
    /// # Errors
    /// [`PortBindingAlreadyActive`](crate::Type::PortBindingAlreadyActive) if it is active already, and
    /// [`PortBindingNotFound`](crate::Type::PortBindingNotFound).
    pub async fn activate_binding(
        &self,
        call: Call<'_>,
        port: PortId,
        host: &str,
    ) -> Result<Binding, Error> {
        let path = format!("/ports/{port}/bindings/{}/activate", segment(host));
        // Neutron answers without the key that its documentation shows.
        self.one_or_bare(call, Method::PUT, &path, "binding").await
    }

    /// Deletes a binding. Never delete the last one: Neutron would then also delete the port's data
    /// about its server.
    ///
    /// # Errors
    /// [`PortBindingNotFound`](crate::Type::PortBindingNotFound) and Neutron's other errors.
    pub async fn delete_binding(
        &self,
        call: Call<'_>,
        port: PortId,
        host: &str,
    ) -> Result<(), Error> {
        self.delete(call, &format!("/ports/{port}/bindings/{}", segment(host))).await
    }
}

/// A host's name as a segment of a path.
fn segment(host: &str) -> String {
    let mut text = String::with_capacity(host.len());
    for byte in host.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}
