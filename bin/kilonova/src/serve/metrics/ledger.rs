//! What the ledger holds at the moment of asking. Nothing here is kept between two scrapes.

use kilonova_accelerator::ledger as devices;
use kilonova_compute::Compute;
use kilonova_store::Store;
use kilonova_wire::time::now_micros;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Device {
    kind: String,
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
struct Kind {
    kind: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Host {
    host: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Flag(bool);

impl EncodeLabelValue for Flag {
    fn encode(&self, encoder: &mut LabelValueEncoder) -> Result<(), std::fmt::Error> {
        (if self.0 { "yes" } else { "no" }).encode(encoder)
    }
}

/// Counts everything into a registry of its own.
pub(super) async fn count(
    store: &Store,
    compute: Option<&Compute>,
) -> Result<Registry, kilonova_compute::Error> {
    let with_servers = compute.is_some();
    let (ledger, servers, operations) = store
        .read(move |tx| {
            let ledger = devices::census(tx)?;
            if !with_servers {
                return Ok::<_, kilonova_compute::Error>((ledger, Vec::new(), Vec::new()));
            }
            let servers = kilonova_compute::db::census::servers(tx)?;
            Ok((ledger, servers, kilonova_flow::open_by_kind(tx)?))
        })
        .await?;
    let mut registry = Registry::with_prefix("kilonova");
    let devices = family(&mut registry, "devices", "Devices in the ledger");
    for device in ledger.devices {
        let devices::Devices { kind, status, present, health, count } = device;
        set(&devices, &Device { kind, status, health, present: Flag(present) }, count);
    }
    let handles = family(&mut registry, "attach_handles", "Attach handles by state");
    for devices::Handles { attach_type, state, count } in ledger.handles {
        set(&handles, &Handle { attach_type, state }, count);
    }
    let requests = family(&mut registry, "accelerator_requests", "Accelerator requests by state");
    for (state, count) in ledger.requests {
        set(&requests, &State { state }, count);
    }
    let Some(compute) = compute else { return Ok(registry) };
    let by_state = family(&mut registry, "servers", "Servers by state");
    for (state, count) in servers {
        set(&by_state, &State { state }, count);
    }
    let open = family(&mut registry, "open_operations", "Operations under way");
    for (kind, count) in operations {
        set(&open, &Kind { kind }, count);
    }
    hosts(&mut registry, compute);
    Ok(registry)
}

fn hosts(registry: &mut Registry, compute: &Compute) {
    let now = now_micros();
    let all = compute.fleet.all();
    let up = all.iter().filter(|host| host.is_up(now)).count() as i64;
    let states = family(registry, "hosts", "Compute hosts by state");
    set(&states, &State { state: "up".into() }, up);
    set(&states, &State { state: "down".into() }, all.len() as i64 - up);
    let ages: Family<Host, Gauge<f64, std::sync::atomic::AtomicU64>> = Family::default();
    registry.register("host_silence_seconds", "Time since a host was heard of", ages.clone());
    for host in all {
        let silence = (now - host.last_seen()).max(0) as f64 / 1e6;
        ages.get_or_create(&Host { host: host.name.to_string() }).set(silence);
    }
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
