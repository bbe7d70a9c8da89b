//! What an operation waits for, in plain words.

use kilonova_flow::Operation;

use crate::db::moves::Move;

/// What is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Awaited {
    /// Whose word moves it on.
    pub host: Option<String>,
    /// What that host is to do.
    pub what: String,
}

impl Awaited {
    /// `host gpu-1 to start the guest`.
    pub fn text(&self) -> String {
        match &self.host {
            Some(host) => format!("host {host} to {}", self.what),
            None => self.what.clone(),
        }
    }
}

/// What an open operation waits for. `hosts` are those on which something of the server is still to be
/// removed.
pub fn awaited(
    operation: &Operation,
    own: Option<&str>,
    open: Option<&Move>,
    hosts: &[String],
) -> Awaited {
    let source = open.map(|one| one.source.as_str());
    let dest = open.and_then(|one| one.dest.as_deref());
    let to = dest.unwrap_or("the new host");
    let removing = || hosts.first().map(String::as_str).or(own);
    let (host, what) = match operation.step.as_str() {
        "spawn" => (own, "start the guest with all its devices".to_owned()),
        "clear" | "clear_unshelve" => {
            (removing(), "say that nothing of the guest is left there".to_owned())
        }
        "destroy" => (removing(), "remove the guest, its disk and its mediated devices".to_owned()),
        "settle" => (own, settling(&operation.kind).to_owned()),
        "soft" => (own, "shut the guest off, so that it can be restored".to_owned()),
        "undo" => (own, "put the guest back as it was before".to_owned()),
        "stop_source" => (source, "shut the guest off, so that it can move".to_owned()),
        "make_dest" => (dest, "make the guest there, with its devices".to_owned()),
        "queued" => (source, "send other guests first (max_concurrent_live_migrations)".to_owned()),
        "receive" => (dest, "make all ready for the running guest".to_owned()),
        "transfer" => (source, sending(open, to)),
        "abort" => (source, "stop sending the guest, and say whether it has it".to_owned()),
        "find" => (dest, "say whether the guest has arrived".to_owned()),
        "arrive" => (dest, "take the guest over".to_owned()),
        "drop_dest" => (dest, "remove what it has of the guest, as the move failed".to_owned()),
        "restore" => (source, "bring the guest back as it was before the move".to_owned()),
        other => (own, format!("finish step {other}")),
    };
    Awaited { host: host.map(str::to_owned), what }
}

fn settling(kind: &str) -> &'static str {
    match kind {
        "start" => "start the guest",
        "stop" => "shut the guest off",
        "reboot" => "restart the guest",
        "pause" => "pause the guest",
        "unpause" => "let the guest go on",
        "suspend" => "write the guest's memory to disk",
        "resume" => "bring the guest back from disk",
        "rescue" => "start the guest from the rescue image",
        "unrescue" => "start the guest from its own disk",
        "rebuild" => "make the guest's disk anew",
        "createImage" | "createBackup" => "send what is on the guest's disk",
        "shelve" => "shut the guest off and send what is on its disk",
        "unshelve" | "restore" => "start the guest again",
        "trigger_crash_dump" => "interrupt the guest",
        _ => "make the guest as it should be",
    }
}

fn sending(open: Option<&Move>, to: &str) -> String {
    match open.and_then(|one| one.progress).filter(|progress| progress.memory_total > 0) {
        None => format!("send the running guest to {to}"),
        Some(progress) => {
            let (all, left) = (progress.memory_total, progress.memory_remaining);
            let done = (all.saturating_sub(left)).saturating_mul(100) / all;
            format!("send the running guest to {to} ({done} % of its memory has gone over)")
        }
    }
}

#[cfg(test)]
mod tests {
    use kilonova_flow::Outcome;
    use kilonova_ids::{OperationId, ServerId};

    use super::*;

    fn operation(kind: &str, step: &str) -> Operation {
        Operation {
            id: OperationId::new_v4(),
            kind: kind.into(),
            subject: ServerId::new_v4(),
            request_id: String::new(),
            project_id: String::new(),
            user_id: String::new(),
            step: step.into(),
            version: 0,
            data: serde_json::Value::Null,
            outcome: Outcome::Open,
            message: None,
            created_at: 0,
            updated_at: 0,
        }
    }

    #[test]
    fn every_step_says_who_is_to_do_what() {
        let said = |kind, step| awaited(&operation(kind, step), Some("a"), None, &[]).text();
        assert_eq!(said("create", "spawn"), "host a to start the guest with all its devices");
        assert_eq!(said("suspend", "settle"), "host a to write the guest's memory to disk");
        assert_eq!(said("live-migration", "transfer"), "send the running guest to the new host");
        let two = ["b".to_owned(), "c".to_owned()];
        let of = operation("delete", "destroy");
        assert!(awaited(&of, Some("a"), None, &two).text().starts_with("host b to remove"));
        assert!(said("x", "y").contains("finish step y"));
    }
}
