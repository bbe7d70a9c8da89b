//! Replies from hosts to questions.

use kilonova_compute_app::{Compute, Error, batch};
use kilonova_compute_db::{fleet, questions};
use kilonova_ids::HostName;
use kilonova_node_api::{Refusal, Reply};
use kilonova_wire::time;

use super::unavailable;

pub(super) async fn replied(
    compute: &Compute,
    host: &HostName,
    epoch: i64,
    replies: Vec<Reply>,
) -> Result<(), Refusal> {
    if let Some(entry) = compute.fleet.by_name(host) {
        entry.record_seen(time::now());
    }
    let host = host.to_owned();
    compute
        .store
        .write(move |tx| {
            batch::check_session(&host, fleet::epoch(tx, &host)?, epoch)?;
            Ok::<_, Error>(replies.iter().try_for_each(|reply| questions::reply(tx, &host, reply))?)
        })
        .await
        .map_err(unavailable)
}
