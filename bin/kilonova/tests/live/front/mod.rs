//! How users reach the services: TLS, proxies, and connection limits.

mod limits;
mod proxies;
mod tls;
