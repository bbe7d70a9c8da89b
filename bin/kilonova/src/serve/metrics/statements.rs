//! Statements that the database was asked to run: for callers and nodes, and by what runs by itself.
//! The two are apart, so that what a request costs can be told from what merely being there costs.

use kilonova_store::Store;
use kilonova_store::testing::Meter;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Whose {
    whose: &'static str,
}

/// Both counts, from the start of the process on.
#[derive(Clone)]
pub(in crate::serve) struct Statements {
    requests: Meter,
    loops: Meter,
}

impl Statements {
    pub(in crate::serve) fn counting() -> Self {
        Self { requests: Meter::counting(), loops: Meter::counting() }
    }

    /// The store for what callers and nodes ask for.
    pub(in crate::serve) fn of_requests(&self, store: &Store) -> Store {
        store.with_meter(self.requests.clone())
    }

    /// The store for what runs by itself.
    pub(in crate::serve) fn of_loops(&self, store: &Store) -> Store {
        store.with_meter(self.loops.clone())
    }

    pub(super) fn show(&self, registry: &mut Registry) {
        let statements = Family::<Whose, Counter>::default();
        let help = "Database statements of requests and of what runs by itself";
        registry.register("statements", help, statements.clone());
        for (whose, meter) in [("requests", &self.requests), ("loops", &self.loops)] {
            statements.get_or_create(&Whose { whose }).inc_by(meter.count());
        }
    }
}
