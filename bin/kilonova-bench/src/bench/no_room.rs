//! Boots without room, alone and concurrently with boots that fit. Explaining a failed boot must not
//! delay the others.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kilonova_program::Failure;
use serde_json::{Value, json};

use super::Size;
use super::client::Client;
use super::cloud::{Cloud, Plan};
use super::load::{self, Endpoint, quantile};
use super::progress::Progress;
use super::table::{Aim, Table};

/// Hosts of eight GPUs.
const HOSTS: usize = 300;
/// Servers with a whole GPU each, so that many handles are in use.
const TAKEN: usize = 30;
/// vGPUs of a GPU.
const VGPUS: usize = 16;
/// Boots without room.
const REFUSED: usize = 40;
/// Boots that fit, alone and concurrently with the others.
const FITTING: usize = 200;

/// Runs this part.
///
/// # Errors
/// When the measured server misbehaves.
pub async fn run(directory: &Path, size: &Size<'_>, store: &str) -> Result<Table, Failure> {
    let plan = Plan { hosts: HOSTS, vgpus: VGPUS, apart: false, database: size.database };
    let mut cloud = Cloud::start(directory, "no-room", &plan).await?;
    cloud.wait_for_hosts().await?;
    let boot_request = cloud.seed().await?;
    let like = |name: &str, vgpus: usize| {
        let mut like = boot_request.0.clone();
        like["server"]["flavorRef"] = json!(name);
        (name.to_owned(), vgpus, like)
    };
    let (card, none) = (like("bench-card", VGPUS), like("bench-none", VGPUS + 1));
    for (name, vgpus, _) in [&card, &none] {
        let flavor = json!({"name": name, "id": name, "ram": 64, "vcpus": 1, "disk": 1});
        cloud.admin.post("/compute/v2.1/flavors", &json!({"flavor": flavor})).await?;
        let specs = json!({"extra_specs": {"resources:VGPU": vgpus.to_string()}});
        let path = format!("/compute/v2.1/flavors/{name}/os-extra_specs");
        cloud.admin.post(&path, &specs).await?;
    }
    let (address, token) = (cloud.server.address.clone(), cloud.token.clone());
    let endpoint = Endpoint { address: &address, token: &token, clients: size.clients.min(8) };
    let progress = Arc::new(Progress::begin("boots without room", TAKEN + 2 * FITTING));
    load::boot(endpoint, TAKEN, &card.2, &progress).await?;

    let refused = refuse(&mut cloud.admin, &none.2, REFUSED).await?;
    let (alone, ids) = load::boot(endpoint, FITTING, &boot_request.0, &progress).await?;
    load::delete(endpoint, ids, &progress).await?;

    let ends = Arc::new(AtomicBool::new(false));
    let other = {
        let mut client = Client::connect(&address, &token).await?;
        let (ends, body) = (Arc::clone(&ends), none.2.clone());
        tokio::spawn(async move {
            let mut times = Vec::new();
            while !ends.load(Ordering::Relaxed) {
                times.extend(refuse(&mut client, &body, 1).await?);
            }
            Ok::<_, Failure>(times)
        })
    };
    let beside = load::boot(endpoint, FITTING, &boot_request.0, &progress).await;
    ends.store(true, Ordering::Relaxed);
    let refused_beside =
        other.await.map_err(|e| Failure::failed("a client of the benchmark failed", e))??;
    let (beside, _) = beside?;
    cloud.end();

    let title = format!(
        "{store}: boots without room, {HOSTS} hosts, {TAKEN} servers of {VGPUS} vGPUs, \
         {} clients whose boots fit",
        endpoint.clients
    );
    let mut table = Table::new(title, ["alone", "concurrently"].map(str::to_owned));
    let pair = |share: f64, one: &[Duration], other: &[Duration]| {
        [Some(quantile(one, share)), Some(quantile(other, share))]
    };
    let most = Some(Aim::Most(500.0));
    table.row("no room: POST p50", "ms", None, pair(0.5, &refused, &refused_beside));
    table.row("no room: POST p99", "ms", most, pair(0.99, &refused, &refused_beside));
    table.row(
        "fits: POST to ACTIVE p50",
        "ms",
        None,
        pair(0.5, &alone.durations, &beside.durations),
    );
    table.row(
        "fits: POST to ACTIVE p99",
        "ms",
        most,
        pair(0.99, &alone.durations, &beside.durations),
    );
    Ok(table)
}

/// Boots without room, one after the other.
async fn refuse(client: &mut Client, body: &Value, count: usize) -> Result<Vec<Duration>, Failure> {
    let mut times = Vec::new();
    for _ in 0..count {
        let begun = Instant::now();
        let made = client.post("/compute/v2.1/servers", body).await?.json();
        times.push(begun.elapsed());
        let id = made["server"]["id"].as_str().unwrap_or_default();
        let server = client.get(&format!("/compute/v2.1/servers/{id}")).await?.json();
        if server["server"]["status"] != "ERROR" {
            return Err(Failure::Failed(format!("a boot without room did not fail: {server}")));
        }
    }
    Ok(times)
}
