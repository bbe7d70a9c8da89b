//! Answers to console requests from hosts that run in this process.

use std::io;

use kilonova_compute_app::Compute;
use kilonova_compute_app::consoles::Answer;
use kilonova_ids::HostName;
use kilonova_node_api::{ConsoleAnswer, ConsoleRequest, Refusal};
use tokio::net::UnixStream;

pub(super) async fn answer(
    compute: &Compute,
    host: &HostName,
    request: &ConsoleRequest,
    answer: ConsoleAnswer,
) -> Result<(), Refusal> {
    let failed = |error: io::Error| Refusal::Rejected(format!("the console's socket: {error}"));
    let answer = match answer {
        ConsoleAnswer::Available => Answer::Available,
        ConsoleAnswer::Refused(refusal) => Answer::Refused(refusal),
        ConsoleAnswer::Connected(socket) => {
            socket.set_nonblocking(true).map_err(failed)?;
            Answer::Connected(Box::new(UnixStream::from_std(socket).map_err(failed)?))
        }
    };
    let waiting = compute.consoles.expected(host, request.id).ok_or_else(|| {
        Refusal::Rejected(
            "no client waits for this console at this controller; a host inside a controller can \
             only serve clients of that controller"
                .into(),
        )
    })?;
    waiting.answer(answer);
    Ok(())
}
