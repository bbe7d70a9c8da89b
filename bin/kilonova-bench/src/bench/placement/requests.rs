//! The measured requests: those that schedulers send constantly, and those known to overload
//! Placement.

use std::collections::HashMap;
use std::sync::Arc;

use hyper::Method;
use kilonova_program::Failure;
use serde_json::{Value, json};
use uuid::Uuid;

use super::super::client::Client;
use super::measure::{Request, Row, Target, measure};
use super::{Size, cloud};

const PLAIN: &str = "/allocation_candidates?resources=VCPU:1,MEMORY_MB:512,DISK_GB:1";
const TWO_GROUPS: &str = "&required_HOST=CUSTOM_PERF_HOST&resources_D1=VGPU:1\
                          &required_D1=in:CUSTOM_PERF_GPU_A,CUSTOM_PERF_GPU_B&resources_D2=VGPU:2\
                          &group_policy=isolate&same_subtree=_HOST,_D1,_D2&limit=1000";
const VGPU: &str = "&resources_GPU=VGPU:1&required_GPU=CUSTOM_PERF_GPU_A&limit=1000";

/// All requests to a cloud of hosts with pGPUs, by one client and by several.
pub async fn all(target: &Target, size: &Size<'_>) -> Result<Vec<Row>, Failure> {
    let searches = [
        ("plain, limit=10", format!("{PLAIN}&limit=10")),
        ("plain, limit=1000", format!("{PLAIN}&limit=1000")),
        ("VGPU group + trait, limit=1000", format!("{PLAIN}{VGPU}")),
        ("two groups, isolate + same_subtree, limit=1000", format!("{PLAIN}{TWO_GROUPS}")),
        ("nothing fits", format!("{PLAIN}&resources_GPU=VGPU:17&limit=1000")),
    ];
    let mut rows = Vec::new();
    for (what, path) in searches {
        rows.extend(both(target, what, size, get(path)).await?);
    }
    let providers = Arc::new(providers(target, size.hosts).await?);
    // Each run has its own consumers.
    for clients in [1, size.clients] {
        let run = Uuid::new_v4().as_u128() & !0xffff_ffff;
        let consumer = move |number: usize| Uuid::from_u128(run | number as u128);
        let all = Arc::clone(&providers);
        let put = move |number: usize| {
            let (root, gpu) = &all[(number * 7919) % all.len()];
            let path = format!("/allocations/{}", consumer(number));
            (Method::PUT, path, allocation(root, gpu).to_string())
        };
        let made = measure(target, "PUT /allocations, spread", clients, size.duration, put).await?;
        let count = made.count().max(1);
        rows.push(made);
        let show = move |number: usize| -> Request {
            let path = format!("/allocations/{}", consumer(number % count));
            (Method::GET, path, String::new())
        };
        let what = "GET /allocations/{consumer}";
        rows.push(measure(target, what, clients, size.duration, show).await?);
    }
    Ok(rows)
}

/// Requests with one group for each GPU, to hosts of eight GPUs.
pub async fn wide(target: &Target, size: &Size<'_>) -> Result<Vec<Row>, Failure> {
    let query = |gpus: usize| -> String {
        let groups: String = (1..=gpus).map(|n| format!("&resources{n}=PGPU:1")).collect();
        format!("/allocation_candidates?resources=VCPU:1&group_policy=none{groups}&limit=1000")
    };
    let mut rows = both(target, "8 one-GPU groups, limit=1000", size, get(query(8))).await?;
    rows.extend(both(target, "9 one-GPU groups (one too many)", size, get(query(9))).await?);
    Ok(rows)
}

fn get(path: String) -> impl Fn(usize) -> Request + Clone + Send + 'static {
    move |_| (Method::GET, path.clone(), String::new())
}

async fn both(
    target: &Target,
    what: &str,
    size: &Size<'_>,
    request: impl Fn(usize) -> Request + Clone + Send + 'static,
) -> Result<Vec<Row>, Failure> {
    let alone = measure(target, what, 1, size.duration, request.clone()).await?;
    Ok(vec![alone, measure(target, what, size.clients, size.duration, request).await?])
}

fn allocation(root: &str, gpu: &str) -> Value {
    json!({
        "allocations": {
            root: {"resources": {"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 1}},
            gpu: {"resources": {"VGPU": 1}},
        },
        "project_id": "bench", "user_id": "bench", "consumer_generation": null,
        "consumer_type": "INSTANCE",
    })
}

/// The UUIDs of the root providers, each with one of its pGPUs.
async fn providers(target: &Target, hosts: usize) -> Result<Vec<(String, String)>, Failure> {
    let client = Client::connect(&target.address, "admin").await?;
    let mut client = client.with_version("placement 1.39");
    let reply = client.get("/resource_providers").await?.json();
    let mut ids: HashMap<String, String> = HashMap::new();
    for one in reply["resource_providers"].as_array().into_iter().flatten() {
        let text = |key: &str| one[key].as_str().unwrap_or_default().to_owned();
        ids.insert(text("name"), text("uuid"));
    }
    let find = |name: String| {
        let id = ids.get(&name).cloned();
        id.ok_or_else(|| Failure::Failed(format!("the measured server has no provider {name}")))
    };
    (0..hosts)
        .map(|number| Ok((find(cloud::host(number))?, find(cloud::pgpu(number, number % 4))?)))
        .collect()
}
