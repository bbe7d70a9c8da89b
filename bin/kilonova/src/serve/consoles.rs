//! Console support of the controller process: the URLs that hosts dial, the listeners, and the shutdown.

use std::net::SocketAddr;

use kilonova_compute_app::consoles::Consoles;
use kilonova_compute_nodes::{Drain, Phase};
use kilonova_node_api::ControllerUrls;

use tokio::net::TcpListener;

use crate::config::Front;
use crate::failure::Failure;

/// Sets the controller's URLs, and ends its consoles when it stops.
pub(super) fn follow(consoles: &Consoles, urls: ControllerUrls, mut drain: Drain) {
    consoles.set_urls(urls);
    let consoles = consoles.clone();
    tokio::spawn(async move {
        drain.reached(Phase::Stopping).await;
        consoles.stop();
    });
}

/// The sockets of the listeners for consoles.
pub(super) async fn bind(addresses: &[SocketAddr]) -> Result<Vec<TcpListener>, Failure> {
    let mut sockets = Vec::new();
    for address in addresses {
        let instead = "change [vnc] novncproxy_host and novncproxy_port, or [serial_console] \
                       serialproxy_host and serialproxy_port";
        sockets.push(super::bind(*address, " for consoles", instead).await?);
    }
    Ok(sockets)
}

/// The API's own URL, bypassing any balancer.
pub(super) fn api_url(front: &Front, address: SocketAddr) -> String {
    let scheme = if front.tls.is_some() { "https" } else { "http" };
    if address.ip().is_unspecified() {
        return format!("{scheme}://{}:{}", kilonova_program::host_name(), address.port());
    }
    format!("{scheme}://{address}")
}
