//! Opens the consoles of guests: the display by a socket that QEMU gets from libvirt, so that no
//! guest listens on a port, and the serial port by a stream of libvirt.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use kilonova_hypervisor::{Definition, Error, Step};
use kilonova_ids::ServerId;
use kilonova_node_api::{ConsoleAnswer, ConsoleKind, ConsoleProblem, ConsoleRefusal};
use roxmltree::Document;
use virt::connect::Connect;
use virt::domain::Domain;
use virt::error::Error as VirtError;
use virt::stream::Stream;

use super::{Driver, lookup, status};
use crate::connection::QUICK;
use crate::sys;

/// Maximum number of bytes of one read.
const BUFFER: usize = 64 * 1024;

const NO_DISPLAY: &str = "the guest has no display: its image has hw_video_model=none";
const LATER: &str = "the guest was started without a display and gets one at its next start: stop and start the server";

/// The result of opening a domain's console.
enum Found {
    Refused(ConsoleProblem, &'static str),
    Available,
    Display(UnixStream),
    Serial(Stream),
}

impl Driver {
    pub(super) async fn console_of(
        &self,
        server: ServerId,
        kind: ConsoleKind,
        connect: bool,
    ) -> ConsoleAnswer {
        let found = self
            .link
            .call(Step::Inspect, QUICK, move |link| match lookup(link, server)? {
                None => Ok(Found::Refused(
                    ConsoleProblem::NoGuest,
                    "the server has no domain on this host",
                )),
                Some(domain) => open(link, &domain, kind, connect),
            })
            .await;
        let answer = match found {
            Ok(Found::Refused(problem, why)) => Err((problem, why.to_owned())),
            Ok(Found::Available) => Ok(ConsoleAnswer::Available),
            Ok(Found::Display(socket)) => Ok(ConsoleAnswer::Connected(socket)),
            Ok(Found::Serial(stream)) => {
                let joined = join(server, stream).map(ConsoleAnswer::Connected);
                joined.map_err(|error| (ConsoleProblem::Failed, error.to_string()))
            }
            Err(error) => Err((ConsoleProblem::Failed, error.message)),
        };
        answer.unwrap_or_else(|(problem, why)| {
            ConsoleAnswer::Refused(ConsoleRefusal { problem, why })
        })
    }

    /// Redefines a domain that an earlier agent defined without a display.
    pub(super) async fn give_display(&self, server: ServerId) -> Result<(), Error> {
        let _alone = self.defining.take(server).await;
        let Some((found, _)) = self.read(server).await? else { return Ok(()) };
        let definition = found.definition()?;
        if found.state.is_up() || has_display(&found.xml) || !definition.has_display() {
            return Ok(());
        }
        tracing::info!(%server, "redefining the guest, because it has no display yet");
        self.define_alone(&definition).await
    }
}

fn open(
    link: &Connect,
    domain: &Domain,
    kind: ConsoleKind,
    connect: bool,
) -> Result<Found, VirtError> {
    let (status, defined) = status(domain)?;
    let is_up = status.domain_state().is_up();
    if kind == ConsoleKind::Vnc {
        let wanted = Definition::from_xml(&defined).is_ok_and(|one| one.has_display());
        if is_up && !has_display(&domain.get_xml_desc(0)?) {
            let why = if wanted { LATER } else { NO_DISPLAY };
            return Ok(Found::Refused(ConsoleProblem::NoDevice, why));
        }
        if !wanted {
            return Ok(Found::Refused(ConsoleProblem::NoDevice, NO_DISPLAY));
        }
    }
    if !connect {
        return Ok(Found::Available);
    }
    if !is_up {
        return Ok(Found::Refused(ConsoleProblem::ShutOff, "the guest is shut off"));
    }
    match kind {
        ConsoleKind::Vnc => sys::open_graphics(domain).map(Found::Display),
        ConsoleKind::Serial => {
            let stream = Stream::new(link, 0)?;
            // The latest client gets the port, because the connection of an earlier client may be
            // broken.
            domain.open_console(None, &stream, virt_sys::VIR_DOMAIN_CONSOLE_FORCE)?;
            Ok(Found::Serial(stream))
        }
    }
}

fn has_display(xml: &str) -> bool {
    let Ok(document) = Document::parse(xml) else { return false };
    document
        .descendants()
        .any(|node| node.has_tag_name("graphics") && node.attribute("type") == Some("vnc"))
}

/// Connects a new socket with a stream of libvirt, and returns the client's end. libvirt's calls
/// block, so each direction has its own thread. When one thread ends, the other ends too.
fn join(server: ServerId, stream: Stream) -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    let (mut reader, mut writer) = (ours.try_clone()?, ours);
    let sending = stream.clone();
    let up = move || {
        let mut buffer = vec![0; BUFFER];
        let ended = loop {
            match reader.read(&mut buffer) {
                Ok(0) => break Ok(()),
                Ok(length) => match send(&sending, &buffer[..length]) {
                    Ok(()) => {}
                    Err(error) => break Err(error),
                },
                Err(error) => {
                    tracing::debug!(%server, %error, "a serial console's socket broke");
                    break Ok(());
                }
            }
        };
        if let Err(error) = ended.and_then(|()| sending.abort()) {
            tracing::debug!(%server, %error, "a serial console's stream had ended");
        }
        // Fails if the other thread has already shut the socket down.
        let _ = reader.shutdown(Shutdown::Both);
    };
    let down = move || {
        let mut buffer = vec![0; BUFFER];
        while let Ok(length @ 1..) = stream.recv(&mut buffer) {
            if writer.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        // Ends the other thread, which aborts the stream. Fails if that thread has already shut the
        // socket down.
        let _ = writer.shutdown(Shutdown::Both);
    };
    let thread = |name: &str| std::thread::Builder::new().name(name.into());
    thread("serial-up").spawn(up)?;
    thread("serial-down").spawn(down)?;
    Ok(theirs)
}

fn send(stream: &Stream, mut bytes: &[u8]) -> Result<(), VirtError> {
    while !bytes.is_empty() {
        let sent = stream.send(bytes)?;
        bytes = bytes.get(sent..).unwrap_or_default();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::has_display;

    #[test]
    fn only_vnc_is_a_display() {
        let xml = |devices| format!("<domain><devices>{devices}</devices></domain>");
        assert!(has_display(&xml(
            "<graphics type='vnc' port='-1'><listen type='none'/></graphics>"
        )));
        assert!(!has_display(&xml("<graphics type='spice'/>")));
        assert!(!has_display(&xml("<video/>")) && !has_display("no XML"));
    }
}
