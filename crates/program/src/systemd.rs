//! Notifies systemd of a service's state (`sd_notify`): one datagram to the socket in
//! `NOTIFY_SOCKET`. Does nothing without systemd.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Reports that the service is ready; `status` is for people.
pub fn ready(status: &str) {
    notify(&format!("READY=1\nSTATUS={}", line(status)));
}

/// Reports the service's status, for people.
pub fn status(status: &str) {
    notify(&format!("STATUS={}", line(status)));
}

/// Reports that the service is stopping.
pub fn stopping() {
    notify("STOPPING=1");
}

fn notify(text: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(&socket, text) {
        tracing::debug!(%error, "could not notify systemd");
    }
}

fn send(socket: &OsStr, text: &str) -> std::io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &address).map(|_| ())
}

fn line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notifications_arrive_by_path_and_by_name() {
        let folder = tempfile::tempdir().expect("a temporary directory is created");
        let path = folder.path().join("notify");
        let there = UnixDatagram::bind(&path).expect("the socket is bound");
        send(path.as_os_str(), "READY=1").expect("the datagram is sent");
        let mut received = [0; 64];
        let length = there.recv(&mut received).expect("the datagram arrives");
        assert_eq!(&received[..length], b"READY=1");

        let name = format!("kilonova-test-{}", uuid::Uuid::new_v4());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let there = UnixDatagram::bind_addr(&address).expect("the socket is bound");
        send(OsStr::new(&format!("@{name}")), "STATUS=x").expect("the datagram is sent");
        let length = there.recv(&mut received).expect("the datagram arrives");
        assert_eq!(&received[..length], b"STATUS=x");
        assert_eq!(line("a\nb"), "a b");
    }
}
