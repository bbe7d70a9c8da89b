//! The socket: answers until SIGTERM or Ctrl-C, then gives open requests five seconds.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tower::Layer;
use tower_http::normalize_path::{NormalizePath, NormalizePathLayer};

use crate::failure::Failure;

const GRACE: Duration = Duration::from_secs(5);

pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    stop: Arc<Notify>,
) -> Result<(), Failure> {
    let app: NormalizePath<Router> = NormalizePathLayer::trim_trailing_slash().layer(router);
    let service = axum::ServiceExt::<Request>::into_make_service(app);
    let listener = listener.tap_io(|stream| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
    });
    let mut terminate = signal(SignalKind::terminate())
        .map_err(|e| Failure::failed("cannot wait for SIGTERM", e))?;
    let told = Arc::clone(&stop);
    let server = axum::serve(listener, service).with_graceful_shutdown(async move {
        told.notified().await;
    });
    let mut running = tokio::spawn(async move { server.await });
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
        ended = &mut running => {
            return match ended {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => Err(Failure::failed("the server ended", error)),
                Err(error) => Err(Failure::failed("the server ended", error)),
            };
        }
    }
    tracing::info!("stopping; open requests have five seconds");
    stop.notify_one();
    if tokio::time::timeout(GRACE, running).await.is_err() {
        tracing::warn!("some requests were still open after five seconds");
    }
    Ok(())
}
