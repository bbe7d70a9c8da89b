//! How users reach the services: TLS, proxies, and limits on connections.

mod limits;
mod proxies;
mod tls;
