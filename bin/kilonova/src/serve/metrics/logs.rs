//! Counters of this process for its log.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

/// Adds the lines that could not be written.
pub(super) fn show(registry: &mut Registry) {
    let lost: Counter = Counter::default();
    registry.register("log_lines_lost", "Lines of the log that could not be written", lost.clone());
    lost.inc_by(kilonova_program::logs::lost());
}
