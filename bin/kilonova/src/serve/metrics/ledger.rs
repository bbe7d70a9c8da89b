//! Metrics of the ledger, counted at each scrape.

use jiff::Timestamp;
use kilonova_accelerator::ledger as devices;
use kilonova_compute_app::Compute;
use kilonova_store::Store;
use kilonova_wire::time;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Device {
    kind: &'static str,
    status: String,
    health: String,
    present: Flag,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Handle {
    attach_type: String,
    state: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct State {
    state: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Bind {
    road: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HostLabel {
    host: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Flag(bool);

impl EncodeLabelValue for Flag {
    fn encode(&self, encoder: &mut LabelValueEncoder) -> Result<(), std::fmt::Error> {
        (if self.0 { "yes" } else { "no" }).encode(encoder)
    }
}

type Seconds = Gauge<f64, std::sync::atomic::AtomicU64>;

/// Counts everything into a new registry.
pub(super) async fn count(
    store: &Store,
    compute: Option<&Compute>,
) -> Result<Registry, kilonova_compute_app::Error> {
    let with_servers = compute.is_some();
    let (ledger, servers, operations) = store
        .read(move |tx| {
            let ledger = devices::census(tx)?;
            if !with_servers {
                return Ok::<_, kilonova_compute_app::Error>((ledger, Vec::new(), Vec::new()));
            }
            let servers = kilonova_compute_db::census::servers(tx)?;
            Ok((ledger, servers, kilonova_flow::open_by_kind(tx)?))
        })
        .await?;
    let mut registry = Registry::with_prefix("kilonova");
    let devices = family(&mut registry, "devices", "Devices in the ledger");
    for device in ledger.devices {
        let devices::Devices { kind, status, present, health, count } = device;
        let (status, health) = (status.to_string(), health.to_string());
        set(
            &devices,
            &Device { kind: kind.as_str(), status, health, present: Flag(present) },
            count,
        );
    }
    let handles = family(&mut registry, "attach_handles", "Attach handles by state");
    for devices::Handles { attach_type, state, count } in ledger.handles {
        let (attach_type, state) = (attach_type.to_string(), state.to_string());
        set(&handles, &Handle { attach_type, state }, count);
    }
    let requests = family(&mut registry, "accelerator_requests", "Accelerator requests by state");
    for (state, count) in ledger.requests {
        set(&requests, &State { state: state.to_string() }, count);
    }
    binds(&mut registry);
    let waiting = "Bind events not yet delivered to an external Nova";
    let outbox: Gauge = Gauge::default();
    registry.register("nova_events_waiting", waiting, outbox.clone());
    outbox.set(ledger.outbox);
    let oldest: Seconds = Gauge::default();
    registry.register("nova_events_oldest_seconds", "Age of the oldest such event", oldest.clone());
    let now = time::now();
    oldest.set(ledger.outbox_since.map_or(0.0, |at| seconds(now, at)));
    let Some(compute) = compute else { return Ok(registry) };
    let by_state = family(&mut registry, "servers", "Servers by state");
    for (state, count) in servers {
        set(&by_state, &State { state: state.as_str().to_owned() }, count);
    }
    let open = family(&mut registry, "open_operations", "Operations in progress");
    for (kind, count) in operations {
        set(&open, &KindLabel { kind }, count);
    }
    hosts(&mut registry, compute);
    Ok(registry)
}

/// Counters since the process started, including zeros, so that rates have a starting point.
fn binds(registry: &mut Registry) {
    let binds = Family::<Bind, Counter>::default();
    let help = "Accelerator requests bound, and failed attempts, by cause";
    registry.register("binds", help, binds.clone());
    for devices::Binds { source: road, outcome, count } in devices::binds() {
        binds.get_or_create(&Bind { road, outcome }).inc_by(count);
    }
}

fn hosts(registry: &mut Registry, compute: &Compute) {
    let now = time::now();
    let all = compute.fleet.all();
    let up = all.iter().filter(|host| host.is_up(now)).count() as i64;
    let states = family(registry, "hosts", "Compute hosts by state");
    set(&states, &State { state: "up".into() }, up);
    set(&states, &State { state: "down".into() }, all.len() as i64 - up);
    let ages: Family<HostLabel, Seconds> = Family::default();
    registry.register(
        "host_silence_seconds",
        "Time since the last contact of a host",
        ages.clone(),
    );
    let reports: Family<HostLabel, Seconds> = Family::default();
    let help = "Time since a host last registered, which it does at its start and on changes";
    registry.register("host_report_age_seconds", help, reports.clone());
    for host in all {
        let label = HostLabel { host: host.name.to_string() };
        ages.get_or_create(&label).set(seconds(now, host.last_seen()));
        reports.get_or_create(&label).set(seconds(now, host.reported_at()));
    }
}

/// The seconds since a time; 0 if it is in the future.
fn seconds(now: Timestamp, at: Timestamp) -> f64 {
    now.duration_since(at).as_micros().max(0) as f64 / 1e6
}

fn family<L>(registry: &mut Registry, name: &str, help: &str) -> Family<L, Gauge>
where
    L: Clone + std::hash::Hash + Eq + EncodeLabelSet + std::fmt::Debug + Send + Sync + 'static,
{
    let family = Family::<L, Gauge>::default();
    registry.register(name, help, family.clone());
    family
}

fn set<L: Clone + std::hash::Hash + Eq>(family: &Family<L, Gauge>, labels: &L, count: i64) {
    family.get_or_create(labels).set(count);
}
