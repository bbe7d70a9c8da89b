//! Counters of this process for logins: waiting, computed and refused.

use kilonova_identity::HashStatistics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Cause {
    cause: &'static str,
}

/// Adds the statistics of the identity service.
pub(super) fn show(registry: &mut Registry, statistics: HashStatistics) {
    let HashStatistics { hashes, refused, waiting, passed, locked } = statistics;
    let computed: Counter = Counter::default();
    let help = "Password hashes computed for logins and new passwords";
    registry.register("password_hashes", help, computed.clone());
    computed.inc_by(hashes);
    let queue: Gauge = Gauge::default();
    registry.register("logins_waiting", "Logins in the queue", queue.clone());
    queue.set(i64::try_from(waiting).unwrap_or(i64::MAX));
    let before: Gauge = Gauge::default();
    let help =
        "Password hashes computed between the arrival of the last successful login and its check";
    registry.register("login_hashes_before", help, before.clone());
    before.set(i64::try_from(passed).unwrap_or(i64::MAX));
    let refusals = Family::<Cause, Counter>::default();
    let help = "Logins refused before the password was verified, by cause";
    registry.register("logins_refused", help, refusals.clone());
    for (cause, count) in [("queue", refused), ("locked", locked)] {
        refusals.get_or_create(&Cause { cause }).inc_by(count);
    }
}
