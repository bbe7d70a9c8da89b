//! Writes the hosts' heartbeats to the database, where other controllers and `compute service list`
//! read them, and takes over what operators changed there.
//!
//! Heartbeats of the same second are written by one statement with the earliest time: ten thousand
//! hosts cost some hundred statements, and no host looks fresher than it is.

use kilonova_compute_db::{aggregates, fleet};
use kilonova_ids::HostName;

use crate::{Compute, Error};

/// Heartbeats of one statement differ by less than this, and a smaller change is not written;
/// microseconds.
const SECOND: i64 = 1_000_000;

pub(super) async fn run(compute: Compute) -> Result<(), Error> {
    let hosts = compute.fleet.all();
    let fresh = hosts.iter().filter(|host| host.last_seen() - host.noted() >= SECOND);
    let mut seen: Vec<(i64, HostName)> =
        fresh.map(|host| (host.last_seen(), host.name.clone())).collect();
    seen.sort_unstable();
    for (at, hosts) in together(seen) {
        compute.store.write(move |tx| fleet::seen(tx, &hosts, at)).await?;
    }
    let skewed = hosts.iter().filter_map(|host| Some((host.name.clone(), host.new_skew()?)));
    let skewed: Vec<(HostName, i64)> = skewed.collect();
    for group in skewed.chunks(fleet::TOGETHER) {
        let noted = group.to_vec();
        compute.store.write(move |tx| fleet::skewed(tx, &noted)).await?;
        for (host, skew) in group {
            compute.fleet.by_name(host).iter().for_each(|host| host.skew_is_noted(*skew));
        }
    }
    for row in compute.store.read(fleet::all).await? {
        compute.fleet.refresh(&row);
    }
    compute.fleet.regroup(&compute.store.read(aggregates::all).await?);
    Ok(())
}

/// Groups heartbeats that are sorted by time; each group has its earliest time.
fn together(seen: Vec<(i64, HostName)>) -> Vec<(i64, Vec<HostName>)> {
    let mut groups: Vec<(i64, Vec<HostName>)> = Vec::new();
    for (at, host) in seen {
        match groups.last_mut() {
            Some((first, hosts)) if at - *first < SECOND && hosts.len() < fleet::TOGETHER => {
                hosts.push(host);
            }
            _ => groups.push((at, vec![host])),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::{SECOND, together};
    use kilonova_compute_db::fleet::TOGETHER;
    use kilonova_ids::HostName;

    #[test]
    fn heartbeats_of_one_second_share_the_earliest_time() {
        let seen = [(5, "a"), (6, "b"), (5 + SECOND, "c"), (6 + SECOND, "d")];
        let seen = seen.map(|(at, host)| (at, HostName::verbatim(host))).to_vec();
        let groups = together(seen);
        let expected = [(5, vec!["a", "b"]), (5 + SECOND, vec!["c", "d"])];
        assert_eq!(
            groups,
            expected.map(|(at, of)| (at, of.into_iter().map(HostName::verbatim).collect()))
        );
    }

    #[test]
    fn a_group_is_bounded() {
        let seen: Vec<_> =
            (0..TOGETHER + 1).map(|n| (0, HostName::verbatim(format!("host{n}")))).collect();
        let sizes: Vec<usize> = together(seen).iter().map(|(_, hosts)| hosts.len()).collect();
        assert_eq!(sizes, [TOGETHER, 1]);
    }
}
