//! A proxy between a controller and the object store, which makes the store fail.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kilonova_image::ImageOptions;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::shelf::{self, Shelf, bucket, shelves_with};

/// A TCP proxy in front of the server, with TLS if it has a certificate.
pub struct Proxy {
    pub url: String,
    /// Bytes that the server may send per connection before it is cut; 0 refuses connections, and
    /// `HANGS` never answers.
    limit: Arc<AtomicU64>,
    /// The methods of the requests so far.
    methods: Arc<Mutex<Vec<String>>>,
}

pub const PASSES: u64 = u64::MAX;
pub const HANGS: u64 = u64::MAX - 1;

/// The usual time limit of a request.
pub const USUAL: Duration = Duration::from_secs(20);

impl Proxy {
    pub async fn start(tls: Option<TlsAcceptor>) -> Option<Self> {
        let server = shelf::server()?;
        let server = server.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}", listener.local_addr().unwrap());
        let (limit, methods) = (Arc::new(AtomicU64::new(PASSES)), Arc::<Mutex<Vec<_>>>::default());
        let own = (Arc::clone(&limit), Arc::clone(&methods));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (tls, server, own) = (tls.clone(), server.clone(), own.clone());
                tokio::spawn(async move {
                    let Some(tls) = tls else { return relay(client, server, own).await };
                    // A client that does not accept the certificate ends the handshake.
                    let Ok(client) = tls.accept(client).await else { return };
                    relay(client, server, own).await;
                });
            }
        });
        Some(Self { url, limit, methods })
    }

    pub fn set(&self, limit: u64) {
        self.limit.store(limit, Ordering::SeqCst);
    }

    /// The methods of the requests since the last call.
    pub fn methods(&self) -> Vec<String> {
        std::mem::take(&mut self.methods.lock().unwrap())
    }
}

/// Relays one connection, with the limit that is in force when bytes pass.
async fn relay(
    client: impl AsyncRead + AsyncWrite + Send,
    server: String,
    (limit, methods): (Arc<AtomicU64>, Arc<Mutex<Vec<String>>>),
) {
    if limit.load(Ordering::SeqCst) == 0 {
        return;
    }
    let Ok(server) = TcpStream::connect(server).await else { return };
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let (mut from_server, mut to_server) = server.into_split();
    let up = async {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(read @ 1..) = from_client.read(&mut buffer).await {
            for method in ["GET", "HEAD", "PUT", "POST", "DELETE"] {
                if buffer[..read].starts_with(format!("{method} /").as_bytes()) {
                    methods.lock().unwrap().push(method.to_owned());
                }
            }
            if limit.load(Ordering::SeqCst) == 0
                || to_server.write_all(&buffer[..read]).await.is_err()
            {
                return;
            }
        }
    };
    let down = async {
        let (mut buffer, mut sent) = (vec![0; 64 * 1024], 0);
        while let Ok(read @ 1..) = from_server.read(&mut buffer).await {
            let most = limit.load(Ordering::SeqCst);
            if most == HANGS {
                std::future::pending::<()>().await;
            }
            sent += read as u64;
            if sent > most || to_client.write_all(&buffer[..read]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! { () = up => {}, () = down => {} }
}

/// A controller with a bucket on each database, behind a proxy.
pub async fn behind_proxies(timeout: Duration) -> Vec<(Shelf, Proxy)> {
    behind_proxies_with(timeout, ImageOptions::default()).await
}

/// [`behind_proxies`] with more options.
pub async fn behind_proxies_with(timeout: Duration, options: ImageOptions) -> Vec<(Shelf, Proxy)> {
    let mut all = Vec::new();
    if bucket(None).is_none() {
        return all;
    }
    for shelf in shelves_with(options).await {
        let proxy = Proxy::start(None).await.unwrap();
        let mut stores = bucket(Some(proxy.url.clone())).unwrap();
        stores.s3.as_mut().unwrap().timeout = timeout;
        all.push((shelf.with_stores(stores).await, proxy));
    }
    all
}
