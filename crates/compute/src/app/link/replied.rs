//! The answers of nodes to questions.

use kilonova_node_api::{Refusal, Reply};
use kilonova_wire::time::now_micros;

use super::unavailable;
use crate::db::{fleet, questions};
use crate::{Compute, Error};

pub(super) async fn replied(
    compute: &Compute,
    host: &str,
    epoch: i64,
    replies: Vec<Reply>,
) -> Result<(), Refusal> {
    if let Some(entry) = compute.fleet.by_name(host) {
        entry.seen(now_micros());
    }
    let host = host.to_owned();
    compute
        .store
        .write(move |tx| {
            if fleet::epoch(tx, &host)? != Some(epoch) {
                return Err(Error::Fenced);
            }
            replies.iter().try_for_each(|reply| questions::reply(tx, &host, reply))
        })
        .await
        .map_err(unavailable)
}
