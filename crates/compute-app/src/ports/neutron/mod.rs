//! The external Neutron: requests that must be sent outside a transaction.
//!
//! ```text
//!   resolve     before a boot: the networks, ports and groups that a request names
//!   groups      security groups by name or id
//!   connection  a requested connection in the form that rows keep
//!   attach      after the commit: ports are created, bound and prepared, or released
//!   providers   the providers of the resources that ports request
//!   vif         a bound port as the interface of a guest
//! ```
//!
//! Nothing here reads or writes the database. The caller ([`super::external`]) keeps a journal of
//! its calls: each change is idempotent, and a port can be found by its server even if the answer
//! was lost.

mod attach;
mod connection;
mod groups;
mod providers;
mod resolve;
mod vif;

use kilonova_neutron::{Call, Error, Neutron, Port};
use kilonova_wire::{IntoRefusal, Refusal};
use serde_json::Value;

use crate::boot::machine::truth;

pub use attach::{Attached, Attachment, Failure, attach, device_profile, release, unbind};
pub use connection::{Wanted, Wish};
pub use providers::{ChangedClaims, Providers};
pub use resolve::{Connection, Resolved, Source, resolve, resolve_one};
pub use vif::{BoundPort, interface};

/// Refuses a port whose owner wants a trusted virtual function (`trusted` in its `binding:profile`): no host configures
/// that, and the guest would be unable to change its address or become promiscuous.
fn check_trust(port: &Port) -> Result<(), Refusal> {
    let is_function = matches!(port.vnic_type.as_str(), "direct" | "accelerator-direct");
    let is_trusted = match port.profile.get("trusted") {
        Some(Value::Bool(trusted)) => *trusted,
        Some(Value::String(text)) => truth(text),
        Some(Value::Number(number)) => number.as_i64() == Some(1),
        Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => false,
    };
    if is_function && is_trusted {
        return Err(Refusal::bad_request(format!(
            "Port {} has trusted=true in its binding:profile, but trusted virtual functions are not supported.",
            port.id
        )));
    }
    Ok(())
}

/// Neutron on behalf of a user.
#[derive(Clone, Copy)]
pub struct ForUser<'a> {
    /// Neutron.
    pub neutron: &'a Neutron,
    /// The caller of its requests, with the user's token.
    pub call: Call<'a>,
}

/// The refusal for an error that has no message of its own upstream: 503 if Neutron failed.
fn unnamed(error: Error) -> Refusal {
    error.into_refusal()
}
