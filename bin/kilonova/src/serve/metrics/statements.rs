//! Counters of database statements and round trips, separate for requests and for background loops, so that the cost of
//! requests can be distinguished from the cost of an idle process.

use kilonova_store::Store;
use kilonova_store::testing::Meter;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OriginLabel {
    whose: &'static str,
}

/// Both counters, since the process started.
#[derive(Clone)]
pub(in crate::serve) struct Statements {
    requests: Meter,
    loops: Meter,
}

impl Statements {
    pub(in crate::serve) fn counting() -> Self {
        Self { requests: Meter::counting(), loops: Meter::counting() }
    }

    /// The store for requests of callers and nodes.
    pub(in crate::serve) fn of_requests(&self, store: &Store) -> Store {
        store.with_meter(self.requests.clone())
    }

    /// The store for background loops.
    pub(in crate::serve) fn of_loops(&self, store: &Store) -> Store {
        store.with_meter(self.loops.clone())
    }

    pub(super) fn show(&self, registry: &mut Registry) {
        let statements = Family::<OriginLabel, Counter>::default();
        let help = "Database statements of requests and of background loops";
        registry.register("statements", help, statements.clone());
        let round_trips = Family::<OriginLabel, Counter>::default();
        let help = "Round trips to PostgreSQL of requests and of background loops";
        registry.register("round_trips", help, round_trips.clone());
        for (whose, meter) in [("requests", &self.requests), ("loops", &self.loops)] {
            statements.get_or_create(&OriginLabel { whose }).inc_by(meter.count());
            round_trips.get_or_create(&OriginLabel { whose }).inc_by(meter.round_trips());
        }
    }
}
