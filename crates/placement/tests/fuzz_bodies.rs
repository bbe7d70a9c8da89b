//! Bodies that no client would send: arbitrary bytes, and valid bodies with a value removed, added,
//! huge or of another type. The answer is always a success or a 4xx that names the error, never a
//! 500 or a panic, and the ledger stays consistent.
//!
//! `KILONOVA_FUZZ=1000000` raises the number of inputs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::common;
use crate::common::http::Api;

const PROVIDERS: [&str; 6] = [
    "11111111-1111-4111-8111-111111111111",
    "22222222-2222-4222-8222-222222222222",
    "33333333-3333-4333-8333-333333333333",
    "44444444-4444-4444-8444-444444444444",
    "55555555-5555-4555-8555-555555555555",
    "66666666-6666-4666-8666-666666666666",
];
const CONSUMERS: [&str; 4] = [
    "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa",
    "bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb",
    "cccccccc-cccc-4ccc-8ccc-cccccccccccc",
    "dddddddd-dddd-4ddd-8ddd-dddddddddddd",
];
const CLASSES: [&str; 4] = ["VCPU", "VGPU", "MEMORY_MB", "CUSTOM_FPGA"];

/// A valid request to change something.
#[derive(Debug, Clone)]
struct Write {
    method: &'static str,
    path: String,
    body: Option<Value>,
}

/// A mutation of a body at its n-th value; `Respell` counts only values under a UUID.
#[derive(Debug, Clone)]
enum Mutation {
    Remove(usize),
    Replace(usize, Value),
    Add(usize, String, Value),
    Rename(usize, String),
    Repeat(usize),
    Respell(usize),
    Wrap(usize, usize),
}

/// The payload of a request.
#[derive(Debug, Clone)]
enum Payload {
    Sound,
    Wounded(Vec<Mutation>),
    Cut(usize),
    Bytes(Vec<u8>),
}

#[derive(Debug, Clone)]
struct Input {
    minor: u32,
    write: Write,
    payload: Payload,
    content_type: &'static str,
}

fn generation() -> impl Strategy<Value = Value> {
    prop_oneof![4 => Just(json!("GENERATION")), 1 => (0i64..6).prop_map(Value::from), 1 => Just(Value::Null)]
}

fn inventory() -> impl Strategy<Value = Value> {
    (1i64..40, 0i64..4, 1i64..3, 1i64..3, select(vec![1.0, 1.5, 16.0])).prop_map(
        |(total, reserved, min, step, ratio)| {
            json!({"total": total, "reserved": reserved, "min_unit": min, "max_unit": total,
                   "step_size": step, "allocation_ratio": ratio})
        },
    )
}

fn inventories() -> impl Strategy<Value = Value> {
    vec((select(&CLASSES[..]), inventory()), 0..4)
        .prop_map(|some| some.into_iter().collect::<BTreeMap<_, _>>())
        .prop_map(|some| json!(some))
}

fn allocations() -> impl Strategy<Value = Value> {
    let resources = vec((select(&CLASSES[..]), 1i64..4), 1..3)
        .prop_map(|some| some.into_iter().collect::<BTreeMap<_, _>>());
    let one = resources.prop_map(|resources| json!({"resources": resources}));
    vec((select(&PROVIDERS[..]), one), 0..3)
        .prop_map(|some| json!(some.into_iter().collect::<BTreeMap<_, _>>()))
}

fn claim() -> impl Strategy<Value = Value> {
    (allocations(), prop_oneof![Just(Value::Null), (0i64..4).prop_map(Value::from)]).prop_map(
        |(allocations, generation)| {
            json!({"allocations": allocations, "project_id": "p", "user_id": "u",
                   "consumer_generation": generation, "consumer_type": "INSTANCE"})
        },
    )
}

fn claims() -> impl Strategy<Value = Value> {
    vec((select(&CONSUMERS[..]), claim()), 0..3)
        .prop_map(|some| json!(some.into_iter().collect::<BTreeMap<_, _>>()))
}

/// The list form before 1.12.
fn old_claim() -> impl Strategy<Value = Value> {
    vec((select(&PROVIDERS[..]), select(&CLASSES[..]), 1i64..4), 0..3).prop_map(|some| {
        let list: Vec<Value> = some
            .into_iter()
            .map(|(uuid, class, n)| json!({"resource_provider": {"uuid": uuid}, "resources": {class: n}}))
            .collect();
        json!({"allocations": list, "project_id": "p", "user_id": "u"})
    })
}

fn reshape() -> impl Strategy<Value = Value> {
    let target = (inventories(), generation()).prop_map(|(inventories, generation)| {
        json!({"inventories": inventories, "resource_provider_generation": generation})
    });
    (vec((select(&PROVIDERS[..]), target), 0..3), claims()).prop_map(|(targets, allocations)| {
        let targets: BTreeMap<_, _> = targets.into_iter().collect();
        json!({"inventories": targets, "allocations": allocations})
    })
}

fn write() -> impl Strategy<Value = Write> {
    let provider = || select(&PROVIDERS[..]);
    let to = |method, path: String, body| Write { method, path, body };
    let names = select(vec!["CUSTOM_A", "CUSTOM_B", "CUSTOM_FPGA", "HW_CPU_X86_AVX2", "VCPU"]);
    prop_oneof![
        (provider(), provider(), any::<bool>()).prop_map(move |(uuid, parent, child)| {
            let parent = if child { json!(parent) } else { Value::Null };
            let body =
                json!({"name": format!("n-{uuid}"), "uuid": uuid, "parent_provider_uuid": parent});
            to("POST", "/resource_providers".into(), Some(body))
        }),
        (provider(), provider()).prop_map(move |(uuid, parent)| {
            let body = json!({"name": format!("n-{uuid}"), "parent_provider_uuid": parent});
            to("PUT", format!("/resource_providers/{uuid}"), Some(body))
        }),
        (provider(), inventories(), generation()).prop_map(
            move |(uuid, inventories, generation)| {
                let body =
                    json!({"inventories": inventories, "resource_provider_generation": generation});
                to("PUT", format!("/resource_providers/{uuid}/inventories"), Some(body))
            }
        ),
        (provider(), select(&CLASSES[..]), inventory(), generation()).prop_map(
            move |(uuid, class, mut body, generation)| {
                body["resource_class"] = class.into();
                body["resource_provider_generation"] = generation;
                to("POST", format!("/resource_providers/{uuid}/inventories"), Some(body))
            }
        ),
        (provider(), select(&CLASSES[..]), inventory(), generation()).prop_map(
            move |(uuid, class, mut body, generation)| {
                body["resource_provider_generation"] = generation;
                to("PUT", format!("/resource_providers/{uuid}/inventories/{class}"), Some(body))
            }
        ),
        (provider(), vec(provider(), 0..3), generation()).prop_map(
            move |(uuid, groups, generation)| {
                let body =
                    json!({"aggregates": groups, "resource_provider_generation": generation});
                to("PUT", format!("/resource_providers/{uuid}/aggregates"), Some(body))
            }
        ),
        (provider(), vec(provider(), 0..3)).prop_map(move |(uuid, groups)| {
            to("PUT", format!("/resource_providers/{uuid}/aggregates"), Some(json!(groups)))
        }),
        (provider(), vec(names.clone(), 0..3), generation()).prop_map(
            move |(uuid, traits, generation)| {
                let body = json!({"traits": traits, "resource_provider_generation": generation});
                to("PUT", format!("/resource_providers/{uuid}/traits"), Some(body))
            }
        ),
        names.clone().prop_map(move |name| to("PUT", format!("/traits/{name}"), None)),
        names.clone().prop_map(move |name| to("PUT", format!("/resource_classes/{name}"), None)),
        (names.clone(), names.clone()).prop_map(move |(name, new)| {
            to("PUT", format!("/resource_classes/{name}"), Some(json!({"name": new})))
        }),
        names.clone().prop_map(move |name| {
            to("POST", "/resource_classes".into(), Some(json!({"name": name})))
        }),
        (select(&CONSUMERS[..]), claim()).prop_map(move |(consumer, body)| {
            to("PUT", format!("/allocations/{consumer}"), Some(body))
        }),
        (select(&CONSUMERS[..]), old_claim()).prop_map(move |(consumer, body)| {
            to("PUT", format!("/allocations/{consumer}"), Some(body))
        }),
        claims().prop_map(move |body| to("POST", "/allocations".into(), Some(body))),
        reshape().prop_map(move |body| to("POST", "/reshaper".into(), Some(body))),
        (
            select(vec!["/resource_providers/", "/traits/", "/resource_classes/", "/allocations/"]),
            provider(),
            select(&CONSUMERS[..]),
            names
        )
            .prop_map(move |(kind, uuid, consumer, name)| {
                let what = match kind {
                    "/resource_providers/" => uuid,
                    "/allocations/" => consumer,
                    _ => name,
                };
                to("DELETE", format!("{kind}{what}"), None)
            }),
        (provider(), select(vec!["inventories", "traits", "inventories/VGPU"])).prop_map(
            move |(uuid, what)| to("DELETE", format!("/resource_providers/{uuid}/{what}"), None)
        ),
    ]
}

fn nasty() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        select(vec![0i64, -1, 1, 2_147_483_647, 2_147_483_648, i64::MAX, i64::MIN])
            .prop_map(Value::from),
        select(vec![1e308, -1e308, 3.40282e38, 1e39, 0.0, -0.0, 1.5, 9.2e18, 1e19])
            .prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        select(vec![
            "", " ", "\u{0}", "a\u{0}b", "VCPU", "CUSTOM_", "custom_a", "None", "null", "\u{202e}",
            "'; --", "%(x)s"
        ])
        .prop_map(Value::from),
        (1usize..3000).prop_map(|n| Value::from("A".repeat(n))),
        (1usize..400).prop_map(|n| Value::from("é☃".repeat(n))),
        select(&PROVIDERS[..]).prop_map(Value::from),
        select(&PROVIDERS[..]).prop_map(|uuid| Value::from(uuid.replace('-', "").to_uppercase())),
        Just(json!([])),
        Just(json!({})),
        Just(json!([[[[{}]]]])),
        Just(json!({"": {"": ""}})),
    ]
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let at = || 0usize..64;
    let key = || {
        prop_oneof![
            select(vec![
                "uuid",
                "name",
                "generation",
                "resources",
                "mappings",
                "x",
                "",
                "allocations",
                "project_id",
                "consumer_generation",
                "consumer_type",
                "VCPU",
                "\u{0}",
                "NOT A CLASS"
            ])
            .prop_map(str::to_owned),
            select(&PROVIDERS[..]).prop_map(str::to_owned),
            any::<String>(),
        ]
    };
    prop_oneof![
        2 => at().prop_map(Mutation::Remove),
        4 => (at(), nasty()).prop_map(|(n, value)| Mutation::Replace(n, value)),
        2 => (at(), key(), nasty()).prop_map(|(n, key, value)| Mutation::Add(n, key, value)),
        2 => (at(), key()).prop_map(|(n, key)| Mutation::Rename(n, key)),
        1 => at().prop_map(Mutation::Repeat),
        1 => at().prop_map(Mutation::Respell),
        1 => (at(), 1usize..200).prop_map(|(n, deep)| Mutation::Wrap(n, deep)),
    ]
}

fn input() -> impl Strategy<Value = Input> {
    let payload = prop_oneof![
        3 => Just(Payload::Sound),
        8 => vec(mutation(), 1..4).prop_map(Payload::Wounded),
        1 => (0usize..200).prop_map(Payload::Cut),
        1 => vec(any::<u8>(), 0..200).prop_map(Payload::Bytes),
    ];
    let minor = prop_oneof![1 => 0u32..40, 1 => Just(39)];
    let kind = prop_oneof![
        30 => Just("application/json"),
        1 => Just("text/plain"),
        1 => Just("application/json; charset=latin1"),
    ];
    (minor, write(), payload, kind).prop_map(|(minor, write, payload, content_type)| Input {
        minor,
        write,
        payload,
        content_type,
    })
}

/// Paths of all values in a body, outermost first.
fn paths(value: &Value, here: &str, found: &mut Vec<String>) {
    found.push(here.to_owned());
    let escape = |key: &str| key.replace('~', "~0").replace('/', "~1");
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                paths(inner, &format!("{here}/{}", escape(key)), found);
            }
        }
        Value::Array(list) => {
            for (n, inner) in list.iter().enumerate() {
                paths(inner, &format!("{here}/{n}"), found);
            }
        }
        _ => {}
    }
}

fn is_uuid(key: &str) -> bool {
    PROVIDERS.contains(&key) || CONSUMERS.contains(&key)
}

/// The same UUID, with its first dash one digit earlier.
fn respelt(uuid: &str) -> String {
    format!("{}-{}{}", &uuid[..7], &uuid[7..8], &uuid[9..])
}

fn mutate(body: &mut Value, mutation: &Mutation) {
    let mut found = Vec::new();
    paths(body, "", &mut found);
    if matches!(mutation, Mutation::Respell(_)) {
        let is_uuid = |path: &String| path.rsplit('/').next().is_some_and(is_uuid);
        found.retain(is_uuid);
        if found.is_empty() {
            return;
        }
    }
    let (Mutation::Remove(n)
    | Mutation::Replace(n, _)
    | Mutation::Add(n, ..)
    | Mutation::Rename(n, _)
    | Mutation::Repeat(n)
    | Mutation::Respell(n)
    | Mutation::Wrap(n, _)) = mutation;
    let path = found[n % found.len()].clone();
    let (parent, key) = path.rsplit_once('/').unwrap_or(("", ""));
    let key = key.replace("~1", "/").replace("~0", "~");
    match mutation {
        Mutation::Replace(_, value) => {
            *body.pointer_mut(&path).expect("the path exists") = value.clone()
        }
        Mutation::Add(_, key, value) => match body.pointer_mut(&path) {
            Some(Value::Object(map)) => drop(map.insert(key.clone(), value.clone())),
            Some(Value::Array(list)) => list.push(value.clone()),
            Some(other) => *other = json!({ key: value }),
            None => {}
        },
        Mutation::Remove(_) => match body.pointer_mut(parent) {
            Some(Value::Object(map)) => drop(map.remove(&key)),
            Some(Value::Array(list)) if !list.is_empty() => drop(list.pop()),
            _ => *body = Value::Null,
        },
        Mutation::Rename(_, new) => {
            if let Some(Value::Object(map)) = body.pointer_mut(parent)
                && let Some(value) = map.remove(&key)
            {
                map.insert(new.clone(), value);
            }
        }
        Mutation::Repeat(_) => {
            if let Some(Value::Array(list)) = body.pointer_mut(parent)
                && let Some(last) = list.last().cloned()
            {
                list.push(last);
            }
        }
        Mutation::Respell(_) => {
            if let Some(Value::Object(map)) = body.pointer_mut(parent)
                && let Some(value) = map.get(&key).cloned()
            {
                map.insert(respelt(&key), value);
            }
        }
        Mutation::Wrap(_, deep) => {
            if let Some(inner) = body.pointer_mut(&path) {
                for _ in 0..*deep {
                    *inner = Value::Array(vec![inner.take()]);
                }
            }
        }
    }
}

/// Generations seen in responses, so that some writes succeed.
type Generations = Arc<Mutex<BTreeMap<String, i64>>>;

/// Fills in the provider's generation where the generator left it open.
fn fill(value: &mut Value, provider: &str, known: &BTreeMap<String, i64>) {
    match value {
        Value::String(text) if text == "GENERATION" => {
            *value = known.get(provider).copied().unwrap_or_default().into();
        }
        Value::Object(map) => {
            for (key, inner) in map.iter_mut() {
                let provider = if PROVIDERS.contains(&key.as_str()) { key } else { provider };
                fill(inner, provider, known);
            }
        }
        _ => {}
    }
}

fn bytes(input: &Input, known: &BTreeMap<String, i64>) -> Vec<u8> {
    let provider = input.write.path.split('/').nth(2).unwrap_or_default();
    let mut body = input.write.body.clone().unwrap_or_default();
    fill(&mut body, provider, known);
    match &input.payload {
        Payload::Bytes(bytes) => return bytes.clone(),
        Payload::Sound if input.write.body.is_none() => return Vec::new(),
        Payload::Sound => {}
        Payload::Wounded(wounds) => wounds.iter().for_each(|mutation| mutate(&mut body, mutation)),
        Payload::Cut(n) => {
            let mut text = body.to_string().into_bytes();
            text.truncate(*n);
            return text;
        }
    }
    body.to_string().into_bytes()
}

async fn send(api: &Api, input: &Input, known: &Generations) -> u16 {
    let body = bytes(input, &known.lock().expect("no input panicked"));
    let request = Request::builder()
        .method(input.write.method)
        .uri(&input.write.path)
        .header("host", "here")
        .header("x-auth-token", "admin")
        .header("openstack-api-version", format!("placement 1.{}", input.minor))
        .header("content-type", input.content_type)
        .header("content-length", body.len())
        .body(Body::from(body.clone()))
        .expect("the request is valid");
    let response = api.router.clone().oneshot(request).await.expect("the service answers");
    let status = response.status().as_u16();
    let answer = response.into_body().collect().await.expect("the body is readable").to_bytes();
    let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
    let sent = String::from_utf8_lossy(&body);
    assert!(status < 500, "{status} {answer}\n{input:?}\n{sent}");
    if status >= 400 {
        let detail = answer["errors"][0]["detail"].as_str().unwrap_or_default();
        assert!(detail.len() > 20, "{status} names the error: {answer}\n{input:?}\n{sent}");
        assert!(detail.len() < 20_000, "{status} has a short message\n{input:?}\n{sent}");
    }
    let notified =
        answer["resource_provider_generation"].as_i64().or(answer["generation"].as_i64());
    if let (Some(notified), Some(uuid)) = (notified, input.write.path.split('/').nth(2)) {
        known.lock().expect("no input panicked").insert(uuid.to_owned(), notified);
    }
    status
}

/// Recreates deleted providers, because most writes would otherwise end with 404, and reads the
/// generations.
async fn refresh(api: &Api, known: &Generations) {
    for uuid in PROVIDERS {
        let body = json!({"name": format!("n-{uuid}"), "uuid": uuid});
        let made = api.post("/resource_providers", body).await.status.as_u16();
        if made == 200 {
            let body = json!({
                "resource_provider_generation": 0,
                "inventories": {"VCPU": {"total": 30}, "VGPU": {"total": 8}},
            });
            let at = format!("/resource_providers/{uuid}/inventories");
            api.put(&at, body).await.is(200);
        } else {
            assert_eq!(made, 409);
        }
    }
    let list = api.get("/resource_providers").await.is(200);
    let mut fresh = BTreeMap::new();
    for provider in list.body["resource_providers"].as_array().into_iter().flatten() {
        let uuid = provider["uuid"].as_str().unwrap_or_default().to_owned();
        fresh.insert(uuid, provider["generation"].as_i64().unwrap_or_default());
    }
    *known.lock().expect("no input panicked") = fresh;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_body_is_a_500() {
    let inputs: u32 =
        std::env::var("KILONOVA_FUZZ").ok().and_then(|n| n.parse().ok()).unwrap_or(4000);
    kilonova_testkit::log();
    for (name, store, _guard) in common::stores().await {
        let api = Arc::new(Api::new(&store));
        let known = Generations::default();
        let mut runner = TestRunner::new(Config::default());
        let strategy = input();
        let mut seen: BTreeMap<u16, u32> = BTreeMap::new();
        for round in 0..inputs.div_ceil(32) {
            if round % 8 == 0 {
                refresh(&api, &known).await;
            }
            let sent: Vec<_> = (0..32)
                .map(|_| {
                    let input = strategy
                        .new_tree(&mut runner)
                        .expect("the strategy yields an input")
                        .current();
                    let (api, known) = (Arc::clone(&api), Arc::clone(&known));
                    tokio::spawn(async move { send(&api, &input, &known).await })
                })
                .collect();
            for answer in sent {
                *seen.entry(answer.await.expect("the request does not panic")).or_default() += 1;
            }
        }
        println!("{name}: {inputs} bodies, answers by status {seen:?}");
        for status in [200, 201, 204, 400, 404, 409, 415] {
            assert!(seen.contains_key(&status), "{status} occurs: {seen:?}");
        }
        common::audited(&store).await;
    }
}
