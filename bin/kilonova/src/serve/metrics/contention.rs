//! Counters of this process for conflicts between transactions and for the change log that it follows: they show
//! whether controllers that share a database get in each other's way.

use kilonova_compute_app::Compute;
use kilonova_store::{Contention, Store};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

/// Adds the counters since the process started, including zeros, so that rates have a starting point.
pub(super) fn show(registry: &mut Registry, store: &Store, compute: Option<&Compute>) {
    let Contention { conflicts, groups, grouped, split, turns } = store.contention();
    let mut add = |name: &str, help: &str, count: u64| {
        let counter: Counter = Counter::default();
        registry.register(name, help, counter.clone());
        counter.inc_by(count);
    };
    let help = "Transactions that ran again because another one had changed the same row";
    add("transaction_conflicts", help, conflicts);
    add("transaction_groups", "Commits that several transactions shared", groups);
    add("grouped_transactions", "Transactions that shared a commit with others", grouped);
    let help = "Groups of transactions that had to run one by one";
    add("transaction_groups_split", help, split);
    let help = "Transactions and groups that took turns with those of other controllers";
    add("transaction_turns", help, turns);
    let Some(compute) = compute else { return };
    let others = compute.others.as_ref();
    let polls = others.map_or(0, kilonova_changes::Progress::polls);
    add("change_log_polls", "Polls of the log of other controllers' commits", polls);
    let entries = others.map_or(0, kilonova_changes::Progress::applied);
    add("change_log_entries", "Entries of that log that were read, own ones included", entries);
    let help = "Provider trees that were read again because another controller had changed them";
    add("provider_trees_reread", help, compute.world.reread());
    add("boot_plans", "Plans made for boots", compute.tally.plans());
    let help = "Planned candidates for which the ledger no longer had room";
    add("claims_refused", help, compute.tally.refused());
}
