//! Writes the hosts' heartbeats to the database, where other controllers and `compute service list`
//! read them, and takes over what operators changed there.
//!
//! Heartbeats of the same second are written by one statement with the earliest time, and many statements
//! by one transaction: ten thousand hosts cost some hundred statements and a dozen commits, and no host
//! looks fresher than it is.

use jiff::{SignedDuration, Timestamp};
use kilonova_compute_db::fleet;
use kilonova_ids::HostName;
use kilonova_store::Tx;

use crate::{Compute, Error, follow};

/// The number of statements of one transaction: it holds the rows of at most a thousand hosts, for
/// milliseconds.
const STATEMENTS: usize = 20;
/// Heartbeats of one statement differ by less than this, and a smaller change is not written.
const SECOND: SignedDuration = SignedDuration::from_secs(1);

pub(super) async fn run(compute: Compute) -> Result<(), Error> {
    let hosts = compute.fleet.all();
    let fresh = hosts.iter().filter(|host| host.last_seen().duration_since(host.noted()) >= SECOND);
    let mut seen: Vec<(Timestamp, HostName)> =
        fresh.map(|host| (host.last_seen(), host.name.clone())).collect();
    seen.sort_unstable();
    for groups in together(seen).chunks(STATEMENTS) {
        let groups = groups.to_vec();
        let write = move |tx: &mut Tx<'_>| {
            groups.iter().try_for_each(|(at, hosts)| fleet::seen(tx, hosts, *at))
        };
        compute.store.write(write).await?;
    }
    let skewed = hosts.iter().filter_map(|host| Some((host.name.clone(), host.new_skew()?)));
    let skewed: Vec<(HostName, SignedDuration)> = skewed.collect();
    for group in skewed.chunks(fleet::TOGETHER) {
        let noted = group.to_vec();
        compute.store.write(move |tx| fleet::skewed(tx, &noted)).await?;
        for (host, skew) in group {
            compute.fleet.by_name(host).iter().for_each(|host| host.skew_is_noted(*skew));
        }
    }
    follow::read_hosts(&compute).await
}

/// Groups heartbeats that are sorted by time; each group has its earliest time.
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
