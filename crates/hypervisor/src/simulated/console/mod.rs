//! The consoles of a simulated guest: a display that shows the server's name, and a serial port that
//! echoes. Sessions end when the guest stops.

mod picture;
mod rfb;

use std::collections::HashMap;
use std::io;
use std::os::unix::net::UnixStream as Socket;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kilonova_ids::ServerId;
use kilonova_node_api::{ConsoleAnswer, ConsoleKind, ConsoleProblem, ConsoleRefusal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::watch;

use super::Simulated;
use crate::Step;

/// The open consoles by guest: a session ends when the sender of its guest is dropped.
#[derive(Default)]
pub(super) struct Sessions(Mutex<HashMap<ServerId, watch::Sender<()>>>);

impl Sessions {
    /// Ends the sessions of a guest.
    pub(super) fn end(&self, server: ServerId) {
        self.lock().remove(&server);
    }

    fn begin(&self, server: ServerId) -> watch::Receiver<()> {
        self.lock().entry(server).or_default().subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ServerId, watch::Sender<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Simulated {
    pub(super) fn console_of(
        &self,
        server: ServerId,
        kind: ConsoleKind,
        connect: bool,
    ) -> Result<ConsoleAnswer, ConsoleRefusal> {
        let refused = |problem, why: String| ConsoleRefusal { problem, why };
        if self.guest(server).is_none() {
            let why = format!("server {server} has no domain on this host");
            return Err(refused(ConsoleProblem::NoGuest, why));
        }
        let definition = self
            .definition(server, Step::Inspect)
            .map_err(|error| refused(ConsoleProblem::Failed, error.to_string()))?;
        if kind == ConsoleKind::Vnc && !definition.has_display() {
            let why = "the guest has no display: its image has hw_video_model=none".to_owned();
            return Err(refused(ConsoleProblem::NoDevice, why));
        }
        if !connect {
            return Ok(ConsoleAnswer::Available);
        }
        // The state is read again under the lock that ends the sessions of a guest that stops.
        let guests = self.guests();
        let is_up = guests.get(&server).is_some_and(|guest| guest.state.is_up());
        if !is_up {
            return Err(refused(ConsoleProblem::ShutOff, "the guest is shut off".to_owned()));
        }
        let over = self.consoles.begin(server);
        drop(guests);
        let failed = |error: io::Error| refused(ConsoleProblem::Failed, error.to_string());
        let (ours, theirs) = Socket::pair().map_err(failed)?;
        ours.set_nonblocking(true).map_err(failed)?;
        let ours = UnixStream::from_std(ours).map_err(failed)?;
        let name = definition.config.display_name;
        tokio::spawn(run(ours, kind, name, over));
        Ok(ConsoleAnswer::Connected(theirs))
    }
}

/// Serves one console until its client disconnects or the guest stops.
async fn run(stream: UnixStream, kind: ConsoleKind, name: String, mut over: watch::Receiver<()>) {
    let served = async {
        match kind {
            ConsoleKind::Vnc => rfb::serve(stream, &name).await,
            ConsoleKind::Serial => echo(stream, &name).await,
        }
    };
    tokio::select! {
        // Nothing is ever sent: this ends when the sender is dropped.
        _ = over.changed() => {}
        served = served => if let Err(error) = served {
            tracing::debug!(%error, "a console of a simulated guest ended");
        }
    }
}

/// Sends a login prompt and echoes every byte.
async fn echo(mut stream: UnixStream, name: &str) -> io::Result<()> {
    stream.write_all(format!("{name} login: ").as_bytes()).await?;
    let mut bytes = [0; 4096];
    loop {
        let length = stream.read(&mut bytes).await?;
        if length == 0 {
            return Ok(());
        }
        stream.write_all(&bytes[..length]).await?;
    }
}
