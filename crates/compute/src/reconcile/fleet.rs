//! Signs of life go to the database, where other replicas and `compute service list` see them, and
//! what operators changed there comes back.
//!
//! Hosts that were heard of in the same second are written by one statement with the first's time:
//! ten thousand hosts cost some hundred statements, and nobody is said to be younger than he is.

use crate::db::{aggregates, fleet};
use crate::{Compute, Error};

/// Microseconds that hosts of one statement are apart at most, and that are not worth a statement.
const SECOND: i64 = 1_000_000;

pub(super) async fn run(compute: Compute) -> Result<(), Error> {
    let hosts = compute.fleet.all();
    let fresh = hosts.iter().filter(|host| host.last_seen() - host.noted() >= SECOND);
    let mut seen: Vec<(i64, String)> =
        fresh.map(|host| (host.last_seen(), host.name.to_string())).collect();
    seen.sort_unstable();
    for (at, hosts) in together(seen) {
        compute.store.write(move |tx| fleet::seen(tx, &hosts, at)).await?;
    }
    let told = hosts.iter().filter_map(|host| Some((host.name.to_string(), host.new_skew()?)));
    let told: Vec<(String, i64)> = told.collect();
    for group in told.chunks(fleet::TOGETHER) {
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

/// Groups of what is sorted by time, each with its first's time.
fn together(seen: Vec<(i64, String)>) -> Vec<(i64, Vec<String>)> {
    let mut groups: Vec<(i64, Vec<String>)> = Vec::new();
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
    use crate::db::fleet::TOGETHER;

    #[test]
    fn hosts_of_one_second_go_together_and_none_is_said_to_be_younger() {
        let seen = [(5, "a"), (6, "b"), (5 + SECOND, "c"), (6 + SECOND, "d")];
        let seen = seen.map(|(at, host)| (at, host.to_owned())).to_vec();
        let groups = together(seen);
        let expected = [(5, vec!["a", "b"]), (5 + SECOND, vec!["c", "d"])];
        assert_eq!(
            groups,
            expected.map(|(at, of)| (at, of.iter().map(|h| h.to_string()).collect()))
        );
    }

    #[test]
    fn a_group_has_room_for_so_many() {
        let seen: Vec<_> = (0..TOGETHER + 1).map(|n| (0, format!("host{n}"))).collect();
        let sizes: Vec<usize> = together(seen).iter().map(|(_, hosts)| hosts.len()).collect();
        assert_eq!(sizes, [TOGETHER, 1]);
    }
}
