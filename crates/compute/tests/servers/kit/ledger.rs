//! What must hold: the rules of the ledger, and that hosts, memory and database say the same.

use std::collections::BTreeMap;

use kilonova_engine::Provider;
use kilonova_ids::ProviderId;
use kilonova_placement::World;
use kilonova_store::{Error, params};
use serde_json::Value;

use super::{Cloud, Up};

impl Cloud {
    /// Checks every rule of the ledger.
    pub async fn audit(&self, when: &str) {
        let findings = kilonova_compute::audit::run(&self.store).await.expect("the audit runs");
        let broken: Vec<_> = findings.iter().filter(|finding| !finding.rows.is_empty()).collect();
        assert!(broken.is_empty(), "{} {when}: {broken:#?}", self.name);
    }

    /// The first column of all rows.
    pub async fn column(&self, sql: &'static str) -> Vec<String> {
        self.store
            .read(move |tx| {
                tx.rows(sql, params![])?
                    .iter()
                    .map(|row| row.string(0))
                    .collect::<Result<_, Error>>()
            })
            .await
            .expect("a query")
    }

    /// Units of a class that are taken.
    pub async fn used(&self, class: &'static str) -> i64 {
        self.store
            .read(move |tx| {
                let sql = "SELECT CAST(COALESCE(SUM(used), 0) AS BIGINT) FROM inventories
                    WHERE class = ?1";
                tx.row(sql, params![class])?.map_or(Ok(0), |row| row.int(0))
            })
            .await
            .unwrap_or_else(|error: Error| panic!("{error}"))
    }

    /// Checks the rules, and that each host has the guests and devices that the ledger says it has.
    pub async fn sound(&self, up: &Up, when: &str) {
        self.audit(when).await;
        let servers = up.servers().await;
        for host in &self.topology.hosts {
            let here = |status: &[&str]| {
                let mut ids: Vec<String> = servers
                    .iter()
                    .filter(|server| server["OS-EXT-SRV-ATTR:host"] == host.name.as_str())
                    .filter(|server| status.iter().any(|status| server["status"] == *status))
                    .map(|server| server["id"].as_str().expect("an id").to_owned())
                    .collect();
                ids.sort();
                ids
            };
            let files = |folder| self.files(&host.name, folder);
            let domains: Vec<_> = here(&["ACTIVE", "SHUTOFF", "ERROR"])
                .iter()
                .map(|id| format!("{id}.xml"))
                .collect();
            assert_eq!(files("domains"), domains, "{} {} {when}", self.name, host.name);
            // What a guest does whose last operation failed, nobody knows.
            let unknown = here(&["ERROR"]);
            let running: Vec<_> =
                files("running").into_iter().filter(|id| !unknown.contains(id)).collect();
            assert_eq!(running, here(&["ACTIVE"]), "{} {} {when}", self.name, host.name);
            let mdevs = self.mdevs_of(&host.name).await;
            assert_eq!(files("mdevs"), mdevs, "{} {} {when}", self.name, host.name);
        }
        self.memory_agrees(up, when).await;
    }

    /// Uuids of the mediated devices that guests of a host own, sorted.
    async fn mdevs_of(&self, host: &str) -> Vec<String> {
        let host = host.to_owned();
        self.store
            .read(move |tx| {
                let sql = "SELECT h.uuid FROM attach_handles h JOIN arqs a ON a.uuid = h.arq_id
                    WHERE a.host = ?1 AND h.attach_type = 'MDEV' ORDER BY h.uuid";
                let rows = tx.rows(sql, params![&host])?;
                rows.iter().map(|row| row.string(0)).collect::<Result<_, Error>>()
            })
            .await
            .expect("a query")
    }

    /// Checks that searches run on what the database holds, once the last commit is taken in.
    async fn memory_agrees(&self, up: &Up, when: &str) {
        let fresh = World::new();
        fresh.load(&self.store).await.expect("loads");
        let held = providers(&fresh);
        let taken_in = tokio::time::Instant::now() + std::time::Duration::from_secs(2);
        while providers(&up.compute.world) != held && tokio::time::Instant::now() < taken_in {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        assert_eq!(providers(&up.compute.world), held, "{} {when}", self.name);
    }

    /// Checks that nobody holds anything, on no host and in no table.
    pub async fn empty(&self, up: &Up, when: &str) {
        self.audit(when).await;
        for sql in [
            "SELECT id FROM servers",
            "SELECT server_id FROM documents",
            "SELECT id FROM consumers",
            "SELECT consumer_id FROM allocations",
            "SELECT uuid FROM arqs",
            "SELECT uuid FROM attach_handles WHERE state <> 'free'",
            "SELECT provider_id FROM inventories WHERE used <> 0",
            "SELECT i.provider_id FROM inventories i JOIN deployables d
                ON d.provider_id = i.provider_id WHERE i.reserved <> 0",
            "SELECT id FROM operations WHERE outcome = 'open'",
        ] {
            assert_eq!(self.column(sql).await, Vec::<String>::new(), "{} {when}: {sql}", self.name);
        }
        for host in &self.topology.hosts {
            for folder in ["domains", "running", "mdevs", "notes"] {
                let left = self.files(&host.name, folder);
                assert!(left.is_empty(), "{} {when}: {} {folder} {left:?}", self.name, host.name);
            }
        }
        self.memory_agrees(up, when).await;
    }

    /// Deletes every server and checks that nothing is left of any.
    pub async fn sweep(&self, up: &Up, when: &str) {
        up.clear().await;
        self.empty(up, when).await;
    }
}

/// All providers without what may differ: the order of classes and traits.
fn providers(world: &World) -> BTreeMap<ProviderId, Provider> {
    let snapshot = world.snapshot();
    let views = snapshot.roots().filter_map(|root| snapshot.tree(root));
    views
        .flat_map(|view| view.providers().collect::<Vec<_>>())
        .map(|mut provider| {
            provider.inventories.sort_by(|a, b| a.0.cmp(&b.0));
            provider.traits.sort();
            (provider.id, provider)
        })
        .collect()
}

/// The sentence that says why a server is in `ERROR`.
pub fn fault(server: &Value) -> &str {
    server["fault"]["message"].as_str().unwrap_or_default()
}
