//! Opens consoles of guests for clients that wait at a controller. A console changes nothing on the host, so it waits
//! for no operation in progress. All consoles close when the agent stops.

use std::sync::{Arc, Mutex, PoisonError};

use kilonova_node_api::{ConsoleAnswer, ConsoleProblem, ConsoleRefusal, ConsoleRequest};
use tokio::task::JoinSet;

use super::work::Work;

/// Maximum number of open consoles on a host.
const MOST: usize = 256;

/// The open consoles of this agent, with those that are being opened.
#[derive(Default)]
pub(super) struct Consoles(Mutex<JoinSet<()>>);

impl Consoles {
    /// Answers the requests in the background, and keeps each console open in a task of its own.
    pub(super) fn answer(&self, work: &Arc<Work>, requests: Vec<ConsoleRequest>) {
        if requests.is_empty() {
            return;
        }
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while open.try_join_next().is_some() {}
        for request in requests {
            let has_room = open.len() < MOST;
            open.spawn(answer_one(Arc::clone(work), request, has_room));
        }
    }
}

async fn answer_one(work: Arc<Work>, request: ConsoleRequest, has_room: bool) {
    let ConsoleRequest { server, kind, connect, .. } = request;
    let answer = if has_room {
        work.hypervisor.open_console(server, kind, connect).await
    } else {
        let why = format!("the host has {MOST} consoles open");
        ConsoleAnswer::Refused(ConsoleRefusal { problem: ConsoleProblem::Failed, why })
    };
    match &answer {
        ConsoleAnswer::Connected(_) => {
            tracing::info!(host = %work.host(), %server, kind = kind.as_str(), "opened a console");
        }
        ConsoleAnswer::Refused(refusal) if refusal.problem == ConsoleProblem::Failed => {
            tracing::warn!(host = %work.host(), %server, kind = kind.as_str(), why = %refusal.why, "could not open a console");
        }
        ConsoleAnswer::Refused(_) | ConsoleAnswer::Available => {}
    }
    work.link.answer_console(&request, answer).await;
}
