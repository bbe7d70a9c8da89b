//! Query strings that no client would write: arbitrary bytes, and valid queries with an error in
//! them. The answer is always a 200 or a 4xx that names the error, never a 500 or a panic.
//!
//! `KILONOVA_FUZZ=1000000` raises the number of inputs.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};

use crate::common::http::Api;
use crate::common::stores;

const PATHS: [&str; 5] = [
    "/allocation_candidates",
    "/allocation_candidates/explain",
    "/resource_providers",
    "/traits",
    "/usages",
];

const KEYS: [&str; 22] = [
    "resources",
    "resources1",
    "resources_A",
    "resources-9",
    "required",
    "required1",
    "required_A",
    "member_of",
    "member_of1",
    "in_tree",
    "in_tree_A",
    "limit",
    "group_policy",
    "root_required",
    "same_subtree",
    "name",
    "uuid",
    "associated",
    "project_id",
    "user_id",
    "consumer_type",
    "x",
];

const VALUES: [&str; 26] = [
    "VCPU:1",
    "VCPU:1,MEMORY_MB:512",
    "VGPU:2",
    "CUSTOM_FPGA:1",
    "VCPU:99999999999999999999",
    "VCPU:-1",
    "HW_CPU_X86_AVX2",
    "!HW_CPU_X86_AVX2",
    "in:HW_CPU_X86_AVX2,CUSTOM_A",
    "CUSTOM_A,!CUSTOM_B",
    "!!!CUSTOM_A",
    "5294f726-33d5-472a-bef1-9e19bb41626d",
    "in:5294f726-33d5-472a-bef1-9e19bb41626d,5294f72633d5472abef19e19bb41626d",
    "!in:5294f726-33d5-472a-bef1-9e19bb41626d",
    "!5294f726-33d5-472a-bef1-9e19bb41626d",
    "1",
    "1000",
    "18446744073709551616",
    "none",
    "isolate",
    "1,_A",
    "_A",
    "startswith:HW_",
    "true",
    "INSTANCE",
    "",
];

const SPICES: [&str; 20] = [
    ",",
    ":",
    "!",
    "in:",
    "!in:",
    "%00",
    "%ff",
    "%f0%9f%a6%80",
    "%",
    "%2",
    "+",
    "%26",
    "=",
    "'",
    "\"",
    "-",
    "{",
    "%0a",
    "9223372036854775807",
    "A",
];

/// A valid pair, or one with characters inserted, removed or doubled.
fn pair() -> impl Strategy<Value = String> {
    let spice = (any::<prop::sample::Index>(), select(&SPICES[..]), 0..3_u8);
    (select(&KEYS[..]), select(&VALUES[..]), vec(spice, 0..3)).prop_map(|(key, value, spices)| {
        let mut pair = format!("{key}={value}");
        for (at, spice, how) in spices {
            let at = at.index(pair.len() + 1);
            if !pair.is_char_boundary(at) {
                continue;
            }
            match how {
                0 => pair.insert_str(at, spice),
                1 => pair.truncate(at),
                _ => pair.extend_from_within(..at),
            }
        }
        pair
    })
}

/// Arbitrary bytes, percent-encoded as a request line requires.
fn noise() -> impl Strategy<Value = String> {
    vec(any::<u8>(), 0..60).prop_map(|bytes| {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"=&,:!_-%+".contains(&b);
        bytes
            .into_iter()
            .map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02x}") })
            .collect()
    })
}

fn queries() -> impl Strategy<Value = String> {
    let sound = Just("resources=VCPU:1".to_owned());
    let first = prop_oneof![1 => sound, 1 => pair()];
    let mutants = (first, vec(pair(), 0..6)).prop_map(|(first, rest)| {
        let mut all = vec![first];
        all.extend(rest);
        all.join("&")
    });
    prop_oneof![4 => mutants, 1 => noise()]
}

#[tokio::test]
async fn no_query_is_a_500() {
    let wanted = std::env::var("KILONOVA_FUZZ").ok().and_then(|n| n.parse().ok());
    let (_, store, _guard) = stores().await.remove(0);
    let api = Api::new(&store);
    for name in ["CUSTOM_A", "CUSTOM_B"] {
        api.ask("PUT", &format!("/traits/{name}"), None).await.is(201);
    }
    for host in 0..3 {
        let name = format!("host-{host}");
        let stock = [("VCPU", 8), ("MEMORY_MB", 999)];
        let root = api.provider(&name, None, &stock).await;
        for gpu in 0..4 {
            api.provider(&format!("host-{host}-{gpu}"), Some(&root), &[("VGPU", 4)]).await;
        }
    }
    let mut runner = TestRunner::new(Config::default());
    let minors = prop_oneof![3 => Just(39), 1 => 0..40_u32];
    let inputs = (select(&PATHS[..]), queries(), minors);
    let mut fine = 0;
    let count = wanted.unwrap_or(6_000_usize);
    for _ in 0..count {
        let (path, query, minor) =
            inputs.new_tree(&mut runner).expect("the strategy yields an input").current();
        let uri = format!("{path}?{query}");
        if uri.parse::<axum::http::Uri>().is_err() {
            continue;
        }
        let answer = api.at(minor, "GET", &uri, None).await;
        let status = answer.status.as_u16();
        assert!(status == 200 || (400..500).contains(&status), "1.{minor} {uri}: {status}");
        assert!(status == 200 || !answer.detail().is_empty(), "1.{minor} {uri}: {}", answer.body);
        fine += usize::from(status == 200);
    }
    assert!(fine * 50 > count, "{fine} of {count} queries are valid, more than 2 %");
}
