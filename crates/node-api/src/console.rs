//! Consoles: requests of a controller to connect a waiting client to a guest's display or serial port.
//!
//! Requests travel with the documents under the same generation counter. The client waits at the controller that sent
//! the request, so the host answers that controller instead of the one that it polls. A request is answered at most
//! once, and promptly, because the client times out.

use std::os::unix::net::UnixStream;

use kilonova_ids::ServerId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::is_default;

/// The protocol with which an agent asks a controller to upgrade a connection to a console's bytes.
pub const CONSOLE_PROTOCOL: &str = "kilonova-console";

words! {
    /// The devices that consoles show.
    ConsoleKind {
        /// The display, with keyboard and pointer, in the RFB protocol.
        Vnc = "vnc",
        /// The first serial port.
        Serial = "serial",
    }
}

/// A request for a console.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsoleRequest {
    /// Its id, which only the controller and the host know.
    pub id: Uuid,
    /// The server.
    pub server: ServerId,
    /// The console.
    pub kind: ConsoleKind,
    /// True to connect; false to answer only whether the guest has this console.
    pub connect: bool,
    /// The URLs of the controller that waits for the answer.
    #[serde(default)]
    pub controller: ControllerUrls,
}

/// The URLs of one controller, bypassing any load balancer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ControllerUrls {
    /// The listener for enrolled hosts.
    #[serde(skip_serializing_if = "is_default")]
    pub hosts: Option<String>,
    /// The API's port, for hosts with the shared token.
    #[serde(skip_serializing_if = "is_default")]
    pub api: Option<String>,
}

/// The answer to a [`ConsoleRequest`].
#[derive(Debug)]
pub enum ConsoleAnswer {
    /// The guest has the console.
    Available,
    /// The other end of this socket is the console.
    Connected(UnixStream),
    /// The guest has no such console, or none now.
    Refused(ConsoleRefusal),
}

/// An answer that is not a connection, as the agent sends it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum ConsoleReply {
    /// The guest has the console.
    Available,
    /// The guest has no such console, or none now.
    Refused(ConsoleRefusal),
}

/// The reason why there is no console.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsoleRefusal {
    /// The case.
    pub problem: ConsoleProblem,
    /// The explanation.
    pub why: String,
}

words! {
    /// The reason why there is no console.
    ConsoleProblem {
        /// The host has no guest of the server.
        NoGuest = "no_guest",
        /// The guest has no such device.
        NoDevice = "no_device",
        /// The guest is shut off.
        ShutOff = "shut_off",
        /// The console is in use, or the hypervisor failed.
        Failed = "failed",
    }
}
