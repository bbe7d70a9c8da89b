//! The run: rounds of requests on several lanes, with checks of the invariants after each.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kilonova_wire_tests::Document;

use crate::fuzz::cleanup::Operator;
use crate::fuzz::cloud::{Cloud, clouds};
use crate::fuzz::compose::{Sent, request};
use crate::fuzz::identifiers::Identifiers;
use crate::fuzz::random::Rng;
use crate::fuzz::shrink::shrunk;
use crate::fuzz::verdict::send;

/// Default number of bodies for each store.
const BODIES: usize = 10_000;
/// The distance between the request numbers of two stores, so that their requests differ.
const APART: u64 = 1_000_000_000;
/// Default seed: fixed, so that a failure is due to a change and not to a new seed. `make fuzz`
/// uses a new one each time.
const SEED: u64 = 20_261_122;
/// Number of bodies between two progress messages.
const PRINTED: usize = 50_000;
const LANES: usize = 4;
/// Requests of a lane per round.
const ROUND: usize = 500;

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_is_sent_is_a_fault_of_ours() {
    kilonova_testkit::log();
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        usual(info);
    }));
    let seed = from_environment("KILONOVA_FUZZ_SEED").unwrap_or(SEED);
    let wanted = from_environment("KILONOVA_FUZZ_BODIES").map_or(BODIES, |n| n as usize);
    println!("KILONOVA_FUZZ_SEED={seed} KILONOVA_FUZZ_BODIES={wanted}");
    let document = Arc::new(Document::compute().expect("the document is valid"));
    let mut faults = Vec::new();
    for (cloud, first) in clouds().await.into_iter().zip((0..).map(|store| store * APART)) {
        let mut run = Run::new(Arc::new(cloud), Arc::clone(&document), (seed, first));
        let mut printed = 0;
        while run.bodies < wanted {
            run.round().await;
            if run.bodies - printed >= PRINTED {
                printed = run.bodies;
                run.report();
            }
        }
        run.end().await;
        run.report();
        faults.extend(run.faults.into_values());
    }
    let panics = PANICS.load(Ordering::Relaxed);
    assert!(faults.is_empty(), "{} faults:\n\n{}", faults.len(), faults.join("\n\n"));
    assert_eq!(panics, 0, "no task panics");
}

struct Run {
    cloud: Arc<Cloud>,
    document: Arc<Document>,
    seed: u64,
    next: u64,
    requests: usize,
    bodies: usize,
    statuses: BTreeMap<(&'static str, u16), usize>,
    slowest: (Duration, String),
    begun: Instant,
    /// The first request of each fault.
    faults: BTreeMap<String, String>,
}

/// The result of a lane.
struct Seen {
    bodies: usize,
    statuses: BTreeMap<(&'static str, u16), usize>,
    slowest: (Duration, String),
    faults: Vec<(u64, Sent, u16, String, String)>,
    requests: usize,
}

impl Run {
    /// A run with the requests of a seed, from number `next` on.
    fn new(cloud: Arc<Cloud>, document: Arc<Document>, (seed, next): (u64, u64)) -> Self {
        Self {
            cloud,
            document,
            seed,
            next,
            requests: 0,
            bodies: 0,
            statuses: BTreeMap::new(),
            slowest: Default::default(),
            begun: Instant::now(),
            faults: BTreeMap::new(),
        }
    }

    async fn round(&mut self) {
        let pool = Arc::new(self.operator().tidy().await);
        let mut lanes = tokio::task::JoinSet::new();
        for _ in 0..LANES {
            let first = self.next;
            self.next += ROUND as u64;
            let (cloud, document) = (Arc::clone(&self.cloud), Arc::clone(&self.document));
            lanes.spawn(lane(cloud, document, Arc::clone(&pool), self.seed, first));
        }
        while let Some(seen) = lanes.join_next().await {
            let seen = seen.expect("the lane completes");
            self.requests += seen.requests;
            self.bodies += seen.bodies;
            for (key, count) in seen.statuses {
                *self.statuses.entry(key).or_default() += count;
            }
            if seen.slowest.0 > self.slowest.0 {
                self.slowest = seen.slowest;
            }
            for (index, sent, status, wrong, answer) in seen.faults {
                let what: String = wrong.chars().take(160).collect();
                let key =
                    format!("{} {} {} {status} {what}", sent.service, sent.method, sent.route);
                if self.faults.len() < 200 && !self.faults.contains_key(&key) {
                    let text = self.describe(index, &sent, status, &wrong, &answer).await;
                    eprintln!("{text}\n");
                    self.faults.insert(key, text);
                }
            }
        }
        self.sound("after a round").await;
    }

    async fn describe(
        &self,
        index: u64,
        sent: &Sent,
        status: u16,
        wrong: &str,
        answer: &str,
    ) -> String {
        let small = shrunk(&self.cloud.routers[sent.service], &self.document, sent, status).await;
        let small = small.map_or_else(
            || "  (sent again, it has a correct response)".to_owned(),
            |small| format!("minimized: {small}"),
        );
        format!(
            "{} request {index} of seed {}: {status}, {wrong}: {answer}\n{sent}\n{small}",
            self.cloud.store, self.seed
        )
    }

    fn operator(&self) -> Operator<'_> {
        Operator { cloud: &self.cloud, document: &self.document }
    }

    /// Checks that the rules of the ledger hold and that all simulated hosts still run.
    async fn sound(&mut self, when: &str) {
        let findings = kilonova_compute_db::audit::run(&self.cloud.compute.store).await;
        for finding in findings.expect("the audit runs").iter().filter(|f| !f.rows.is_empty()) {
            let text = format!("{} {when}: {finding:?}", self.cloud.store);
            if !self.faults.contains_key(finding.rule) {
                eprintln!("{text}\n");
            }
            self.faults.entry(finding.rule.to_owned()).or_insert(text);
        }
        assert!(self.cloud.nodes.iter().all(|node| !node.is_finished()), "all nodes run {when}");
    }

    /// Deletes all servers and checks that none remains.
    async fn end(&mut self) {
        self.operator().tidy().await;
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let left = self
                .operator()
                .list("compute", "/v2.1/servers?all_tenants=1", "servers", "id")
                .await;
            if left.is_empty() {
                break;
            }
            for id in &left {
                self.operator()
                    .ask("compute", "DELETE", &format!("/v2.1/servers/{id}"), None)
                    .await;
            }
            if Instant::now() > deadline {
                let all = self
                    .operator()
                    .ask("compute", "GET", "/v2.1/servers/detail?all_tenants=1", None)
                    .await;
                self.faults.insert("stuck".into(), format!("servers that were not deleted: {all}"));
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.sound("at the end").await;
    }

    fn report(&self) {
        let took = self.begun.elapsed().as_secs_f64();
        println!(
            "{}: {} requests, {} bodies in {took:.0} s ({:.0}/s), slowest {:?} ({}), {} faults",
            self.cloud.store,
            self.requests,
            self.bodies,
            self.requests as f64 / took,
            self.slowest.0,
            self.slowest.1,
            self.faults.len()
        );
        let mut services: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for ((service, status), count) in &self.statuses {
            services.entry(service).or_default().push(format!("{status}×{count}"));
        }
        for (service, counts) in services {
            println!("  {service:<12} {}", counts.join(" "));
        }
    }
}

async fn lane(
    cloud: Arc<Cloud>,
    document: Arc<Document>,
    pool: Arc<Identifiers>,
    seed: u64,
    first: u64,
) -> Seen {
    let mut seen = Seen {
        bodies: 0,
        statuses: BTreeMap::new(),
        slowest: Default::default(),
        faults: Vec::new(),
        requests: 0,
    };
    for index in first..first + ROUND as u64 {
        let sent = request(&mut Rng::of(seed, index), &document, &pool);
        let Some(answer) = send(&cloud.routers[sent.service], &document, &sent).await else {
            continue;
        };
        seen.requests += 1;
        seen.bodies += usize::from(!sent.body.is_empty());
        *seen.statuses.entry((sent.service, answer.status)).or_default() += 1;
        if answer.took > seen.slowest.0 {
            seen.slowest = (answer.took, format!("{} {}", sent.method, sent.route));
        }
        if let Some(wrong) = answer.wrong {
            let text = String::from_utf8_lossy(&answer.body).chars().take(600).collect();
            seen.faults.push((index, sent, answer.status, wrong, text));
        }
    }
    seen
}
