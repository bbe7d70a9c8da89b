//! Consoles: the URL with its token, and the path of the bytes from a websocket to a simulated guest.

mod client;
mod connections;
mod requests;
mod tokens;

use axum::Router;
use kilonova_compute_app::Compute;
use kilonova_compute_app::consoles::ConsoleOptions;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::kit::{ANN, Client, Cloud, RunningCloud, hosts};
use client::Browser;

/// The listener of a controller's consoles. Dropping this value ends it.
struct Served {
    port: u16,
    _server: JoinSet<()>,
}

impl Served {
    async fn of(compute: &Compute) -> Self {
        let routes = kilonova_compute::api::consoles::routes(compute.clone());
        let router = Router::new().nest("/console", routes);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let port = listener.local_addr().expect("it has an address").port();
        let mut server = JoinSet::new();
        server.spawn(async move {
            axum::serve(listener, router).await.expect("the server runs");
        });
        Self { port, _server: server }
    }

    /// Opens a browser at the URL that a user received.
    async fn open(&self, url: &str) -> Browser {
        Browser::connect(self.port, &format!("/console/websockify?token={}", token(url)), &[]).await
    }
}

/// The token in a URL.
fn token(url: &str) -> &str {
    let (_, token) = url.rsplit_once("%3Ftoken%3D").or(url.rsplit_once("token=")).expect("a token");
    token
}

fn asked(protocol: &str, console_type: &str) -> Value {
    json!({"remote_console": {"protocol": protocol, "type": console_type}})
}

/// The URL of a console that Ann requests.
async fn url(client: &Client, id: &str, protocol: &str, console_type: &str) -> String {
    let path = format!("POST /servers/{id}/remote-consoles");
    let body = asked(protocol, console_type);
    let made = client.call(ANN, "2.99", &path, Some(body)).await.expect(200);
    made["remote_console"]["url"].as_str().expect("the answer has a URL").to_owned()
}

/// Running clouds whose hosts have serial consoles too.
async fn clouds(options: ConsoleOptions, names: &[&str]) -> Vec<(Cloud, RunningCloud)> {
    let mut all = Vec::new();
    let named: Vec<(&str, &[&str])> = names.iter().map(|name| (*name, &[][..])).collect();
    for mut cloud in Cloud::all(hosts(&named)).await {
        cloud.options.consoles = ConsoleOptions { serial: true, ..options.clone() };
        let running = cloud.start().await;
        running.wait_for_hosts().await;
        all.push((cloud, running));
    }
    all
}
