//! Writes the hosts' heartbeats to the database, where other controllers and `compute service list`
//! read them, and reads the heartbeats of hosts that poll another controller.
//!
//! Other changes to the hosts' rows arrive through commit hooks and the change log. The loop
//! periodically rereads all rows, in case a change arrived through neither.
//!
//! Heartbeats of the same second are written by one statement with the earliest time, and many
//! statements by one transaction: ten thousand hosts cost a few hundred statements and a dozen
//! commits, and no heartbeat appears more recent than it is.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use kilonova_compute_db::fleet;
use kilonova_ids::HostName;
use kilonova_store::Tx;
use kilonova_wire::time;

use crate::{Compute, Error, follow};

/// Number of statements per transaction, which locks the rows of at most a thousand hosts for
/// milliseconds.
const STATEMENTS: usize = 20;
/// Heartbeats in one statement differ by less than this, and a smaller change is not written.
const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// Number of rounds between two reads of all rows.
const ALL: u64 = 6;
/// A host that has not polled here for longer than this polls another controller or none: a poll takes at most 20 s.
const ELSEWHERE: SignedDuration = SignedDuration::from_secs(25);
/// If more hosts than this poll elsewhere, one statement reads all rows.
const FEW: usize = 200;

/// Runs the round with this number.
pub(super) async fn run(compute: Compute, round: u64) -> Result<(), Error> {
    let hosts = compute.fleet.all();
    let now = time::now();
    let elsewhere = hosts.iter().filter(|host| now.duration_since(host.last_seen()) > ELSEWHERE);
    let elsewhere: BTreeSet<HostName> = elsewhere.map(|host| host.name.clone()).collect();
    let fresh = hosts
        .iter()
        .filter(|host| host.last_seen().duration_since(host.stored_last_seen()) >= SECOND);
    let mut seen: Vec<(Timestamp, HostName)> =
        fresh.map(|host| (host.last_seen(), host.name.clone())).collect();
    seen.sort_unstable();
    for groups in together(seen).chunks(STATEMENTS) {
        let groups = groups.to_vec();
        let stored = compute.store.write(move |tx| store(tx, &groups)).await?;
        for (at, hosts) in stored {
            for host in hosts.iter().filter_map(|host| compute.fleet.by_name(host)) {
                host.set_stored_last_seen(at);
            }
        }
    }
    let skewed = hosts.iter().filter_map(|host| Some((host.name.clone(), host.unstored_skew()?)));
    let skewed: Vec<(HostName, SignedDuration)> = skewed.collect();
    for group in skewed.chunks(fleet::TOGETHER) {
        let noted = group.to_vec();
        compute.store.write(move |tx| fleet::skewed(tx, &noted)).await?;
        for (host, skew) in group {
            compute.fleet.by_name(host).iter().for_each(|host| host.set_stored_skew(*skew));
        }
    }
    if round.is_multiple_of(ALL) || elsewhere.len() > FEW {
        follow::read_hosts(&compute).await
    } else {
        follow::refresh(&compute, elsewhere).await
    }
}

/// Stores heartbeats, and returns the stored ones.
fn store(
    tx: &mut Tx<'_>,
    groups: &[(Timestamp, Vec<HostName>)],
) -> Result<Vec<(Timestamp, Vec<HostName>)>, Error> {
    let mut asked = Vec::with_capacity(groups.len());
    for (at, hosts) in groups {
        asked.extend(fleet::ask_seen(tx, hosts, *at)?.map(|asked| (*at, asked)));
    }
    let stored = asked.into_iter().map(|(at, asked)| Ok((at, fleet::seen(tx, asked)?)));
    stored.collect()
}

/// Groups heartbeats that are sorted by time; each group is recorded with its earliest time.
fn together(seen: Vec<(Timestamp, HostName)>) -> Vec<(Timestamp, Vec<HostName>)> {
    let mut groups: Vec<(Timestamp, Vec<HostName>)> = Vec::new();
    for (at, host) in seen {
        match groups.last_mut() {
            Some((first, hosts))
                if at.duration_since(*first) < SECOND && hosts.len() < fleet::TOGETHER =>
            {
                hosts.push(host);
            }
            _ => groups.push((at, vec![host])),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use kilonova_compute_db::fleet::TOGETHER;
    use kilonova_ids::HostName;

    use super::together;

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_microsecond(micros).expect("the time is valid")
    }

    #[test]
    fn heartbeats_of_one_second_share_the_earliest_time() {
        let seen = [(5, "a"), (6, "b"), (1_000_005, "c"), (1_000_006, "d")];
        let seen = seen.map(|(micros, host)| (at(micros), HostName::verbatim(host))).to_vec();
        let groups = together(seen);
        let expected = [(5, vec!["a", "b"]), (1_000_005, vec!["c", "d"])];
        assert_eq!(
            groups,
            expected
                .map(|(micros, of)| (at(micros), of.into_iter().map(HostName::verbatim).collect()))
        );
    }

    #[test]
    fn a_group_is_bounded() {
        let seen: Vec<_> =
            (0..TOGETHER + 1).map(|n| (at(0), HostName::verbatim(format!("host{n}")))).collect();
        let sizes: Vec<usize> = together(seen).iter().map(|(_, hosts)| hosts.len()).collect();
        assert_eq!(sizes, [TOGETHER, 1]);
    }
}
