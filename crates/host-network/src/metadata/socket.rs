//! Listening sockets inside a network namespace.
//!
//! A dedicated thread enters the namespace, opens the sockets and ends. A socket stays in the
//! namespace in which it was opened, so the agent's other threads never leave the host's namespace.

use std::net::{SocketAddr, SocketAddrV6, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;

use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::{ADDRESS, ADDRESS_SIX, PORT};
use crate::plug::INSIDE;

/// A network namespace, with a link in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Space {
    /// A process in it.
    pub pid: i32,
    /// Its inode number, because a pid may be reused.
    number: u64,
    /// The index of the link.
    pub link: u32,
}

impl Space {
    /// The namespace of a process, with a link of that index.
    pub fn of(pid: i32, link: u32) -> Result<Self, String> {
        let path = format!("/proc/{pid}/ns/net");
        let number = std::fs::metadata(&path).map_err(|error| format!("{path}: {error}"))?.ino();
        Ok(Self { pid, number, link })
    }
}

/// Opens the sockets: IPv4, and IPv6 where the kernel has it.
pub(super) async fn open(space: Space) -> Result<Vec<tokio::net::TcpListener>, String> {
    let opened = tokio::task::spawn_blocking(move || {
        let thread = thread::Builder::new().name("metadata-socket".into());
        let thread = thread.spawn(move || inside(&space)).map_err(|error| error.to_string())?;
        thread.join().map_err(|_| "the thread failed".to_owned())?
    });
    let opened = opened.await.map_err(|error| error.to_string())??;
    let to_runtime = |socket: TcpListener| {
        socket.set_nonblocking(true)?;
        tokio::net::TcpListener::from_std(socket)
    };
    let sockets = opened.into_iter().map(to_runtime).collect::<Result<_, _>>();
    sockets.map_err(|error| format!("could not use a socket of the metadata service: {error}"))
}

/// Must run in a thread of its own, because it changes the thread's namespace.
fn inside(space: &Space) -> Result<Vec<TcpListener>, String> {
    let path = format!("/proc/{}/ns/net", space.pid);
    let entered = std::fs::File::open(&path).map_err(|error| format!("{path}: {error}"))?;
    move_into_link_name_space(entered.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(|error| format!("cannot enter {path}: {error}"))?;
    let bind = |address: SocketAddr| {
        let socket = TcpListener::bind(address);
        socket.map_err(|error| format!("cannot listen on {address}: {error}"))
    };
    let mut sockets = vec![bind((ADDRESS, PORT).into())?];
    if has_six() {
        let probe = socket(AddressFamily::INET, SocketType::DGRAM, None);
        let probe = probe.map_err(|error| format!("cannot open a socket: {error}"))?;
        let link = name_to_index(&probe, INSIDE);
        let link = link.map_err(|error| format!("cannot find {INSIDE}: {error}"))?;
        sockets.push(bind(SocketAddrV6::new(ADDRESS_SIX, PORT, 0, link).into())?);
    }
    Ok(sockets)
}

/// True if the kernel has IPv6.
pub(crate) fn has_six() -> bool {
    Path::new("/proc/sys/net/ipv6").exists()
}
