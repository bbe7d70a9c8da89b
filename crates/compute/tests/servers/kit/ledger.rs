//! Checks the ledger's rules, and that hosts, memory and database agree.

use std::collections::BTreeMap;

use kilonova_engine::Provider;
use kilonova_ids::ProviderId;
use kilonova_placement::World;
use kilonova_store::{Error, params};
use serde_json::Value;

use super::{Cloud, RunningCloud, wait_until};

impl Cloud {
    /// Checks every rule of the ledger.
    pub async fn audit(&self, when: &str) {
        let findings = kilonova_compute_db::audit::run(&self.store).await.expect("the audit runs");
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
            .expect("the query succeeds")
    }

    /// Records that all hosts have just polled, as the services do every ten seconds. Services that restart
    /// would otherwise treat a host whose record is a minute old as lost.
    pub async fn store_heartbeats(&self) {
        let now = kilonova_wire::time::now();
        let done =
            self.store.write(move |tx| tx.execute("UPDATE hosts SET last_seen = ?1", params![now]));
        done.await.unwrap_or_else(|error: Error| panic!("{error}"));
    }

    /// Changes the database behind the services' back.
    pub async fn execute(&self, sql: &'static str) {
        let done = self.store.write(move |tx| tx.execute(sql, params![]));
        done.await.unwrap_or_else(|error: Error| panic!("{error}"));
    }

    /// Waits until every transaction that has begun is committed or rolled back. A process that dies in one write may
    /// still be committing others.
    pub async fn wait_for_commits(&self) {
        // SQLite has one writer, which runs this write after the earlier ones.
        self.store.write(|_| Ok::<_, Error>(())).await.expect("the store is writable");
        if self.name == "postgresql" {
            wait_until("no transaction is open", async || {
                let open = "SELECT CAST(pid AS TEXT) FROM pg_stat_activity WHERE datname = current_database()
                    AND xact_start IS NOT NULL AND pid <> pg_backend_pid()";
                self.column(open).await.is_empty()
            })
            .await;
        }
    }

    /// Units of a class that are allocated.
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

    /// Checks the rules, and that each host has exactly the guests and devices of the ledger.
    pub async fn assert_consistent(&self, running: &RunningCloud, when: &str) {
        self.audit(when).await;
        let servers = running.servers().await;
        for host in &self.topology.hosts {
            let here = |status: &[&str]| {
                let mut ids: Vec<String> = servers
                    .iter()
                    .filter(|server| server["OS-EXT-SRV-ATTR:host"] == host.name.as_str())
                    .filter(|server| status.iter().any(|status| server["status"] == *status))
                    .map(|server| server["id"].as_str().expect("the answer has an id").to_owned())
                    .collect();
                ids.sort();
                ids
            };
            let files = |folder| self.files(&host.name, folder);
            let guests = self.guests_of(&host.name).await;
            let domains: Vec<_> = guests.keys().map(|id| format!("{id}.xml")).collect();
            assert_eq!(files("domains"), domains, "{} {} {when}", self.name, host.name);
            for (id, devices) in &guests {
                let folder = self.nodes().join(host.name.as_str()).join("domains");
                let xml = std::fs::read_to_string(folder.join(format!("{id}.xml")))
                    .expect("the domain XML is read");
                let text = xml.matches("<kilonova:device ").count();
                let all = devices.iter().all(|device| xml.contains(&format!("'{device}'")));
                let when = format!("{} {} {when} {devices:?}", self.name, host.name);
                assert!(text == devices.len() && all, "{when}: {xml}");
            }
            // The power state of a guest whose last operation failed is unknown.
            let unknown = here(&["ERROR"]);
            let guests: Vec<_> =
                files("running").into_iter().filter(|id| !unknown.contains(id)).collect();
            let mut runs = here(&["ACTIVE", "PAUSED", "RESCUE"]);
            runs.extend(here(&["VERIFY_RESIZE"]).into_iter().filter(|id| {
                let server = servers.iter().find(|server| server["id"] == id.as_str());
                server.is_some_and(|server| server["OS-EXT-STS:power_state"] == 1)
            }));
            runs.sort();
            assert_eq!(guests, runs, "{} {} {when}", self.name, host.name);
            assert_eq!(files("saved"), here(&["SUSPENDED"]), "{} {} {when}", self.name, host.name);
            let mdevs = self.mdevs_of(&host.name).await;
            assert_eq!(files("mdevs"), mdevs, "{} {} {when}", self.name, host.name);
        }
        self.assert_memory_matches_database(running, when).await;
    }

    /// The guests that should be on a host, each with its devices in the ledger: the devices of the server
    /// on its own host, and the devices of its migration on the other host.
    async fn guests_of(&self, host: &str) -> BTreeMap<String, Vec<String>> {
        let host = host.to_owned();
        self.store
            .read(move |tx| {
                let sql = "SELECT d.server_id FROM documents d WHERE d.host = ?1
                    AND d.body <> '{\"state\":\"absent\"}'";
                let mut guests = BTreeMap::new();
                for row in tx.rows(sql, params![&host])? {
                    guests.insert(row.string(0)?, Vec::new());
                }
                let sql = "SELECT a.server_id, CASE WHEN h.attach_type = 'MDEV' THEN h.uuid
                    ELSE h.address END FROM attach_handles h JOIN arqs a ON a.uuid = h.arq_id
                    LEFT JOIN moves m ON m.id = a.consumer_id
                    WHERE a.host = ?1 AND (m.id IS NULL OR m.dest_host <> m.source_host)";
                for row in tx.rows(sql, params![&host])? {
                    let guest = guests.entry(row.string(0)?).or_default();
                    guest.push(row.string(1)?);
                }
                Ok::<_, Error>(guests)
            })
            .await
            .expect("the query succeeds")
    }

    /// The UUIDs of the mediated devices, the addresses of the typed functions and the names of the GPU instances that
    /// guests of a host own, sorted. Devices that are kept for the revert of a resize on the same host are absent: the
    /// revert recreates them.
    async fn mdevs_of(&self, host: &str) -> Vec<String> {
        let host = host.to_owned();
        self.store
            .read(move |tx| {
                let sql = "SELECT CASE WHEN h.attach_type = 'MDEV' THEN h.uuid ELSE h.address END
                    FROM attach_handles h JOIN arqs a ON a.uuid = h.arq_id
                    LEFT JOIN moves m ON m.id = a.consumer_id
                    WHERE a.host = ?1 AND h.mdev_type <> ''
                    AND (m.id IS NULL OR m.dest_host <> m.source_host)
                    UNION ALL SELECT 'mig-' || d.card || '-' || h.mig_start FROM attach_handles h
                    JOIN arqs a ON a.uuid = h.arq_id LEFT JOIN moves m ON m.id = a.consumer_id
                    JOIN deployables p ON p.id = h.deployable_id JOIN devices d ON d.id = p.device_id
                    WHERE a.host = ?1 AND h.mig_start IS NOT NULL
                    AND (m.id IS NULL OR m.dest_host <> m.source_host)";
                let rows = tx.rows(sql, params![&host])?;
                let all = rows.iter().map(|row| row.string(0));
                let mut all = all.collect::<Result<Vec<_>, Error>>()?;
                all.sort();
                Ok::<_, Error>(all)
            })
            .await
            .expect("the query succeeds")
    }

    /// Checks that the world in memory equals the database, once the last commit is applied. A host may
    /// still report on a move, so the database is read again until they agree.
    async fn assert_memory_matches_database(&self, running: &RunningCloud, when: &str) {
        let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(2);
        loop {
            let fresh = World::new();
            fresh.load(&self.store).await.expect("the providers are loaded");
            let (memory, database) = (providers(&running.compute.world), providers(&fresh));
            if memory == database {
                return;
            }
            let is_late = tokio::time::Instant::now() > deadline;
            assert!(!is_late, "{} {when}: {memory:?} in memory, {database:?}", self.name);
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }

    /// Checks that no claim, document or guest is left, on any host or in any table.
    pub async fn assert_empty(&self, running: &RunningCloud, when: &str) {
        self.audit(when).await;
        for sql in [
            "SELECT id FROM servers",
            "SELECT server_id FROM documents",
            "SELECT id FROM consumers",
            "SELECT consumer_id FROM allocations",
            "SELECT uuid FROM arqs",
            "SELECT uuid FROM attach_handles WHERE state <> 'free' OR island_arq_id IS NOT NULL",
            "SELECT provider_id FROM inventories WHERE used <> 0",
            "SELECT i.provider_id FROM inventories i JOIN deployables d
                ON d.provider_id = i.provider_id WHERE i.reserved <> 0",
            "SELECT id FROM operations WHERE outcome = 'open'",
            "SELECT server_id FROM resting",
            "SELECT id FROM images WHERE status <> 'active'",
        ] {
            assert_eq!(self.column(sql).await, Vec::<String>::new(), "{} {when}: {sql}", self.name);
        }
        for host in &self.topology.hosts {
            for folder in ["domains", "running", "saved", "console", "snapshots", "mdevs", "notes"]
            {
                let mut left = self.files(&host.name, folder);
                // The agent keeps a spare file for its next note.
                left.retain(|name| name != "spare.new");
                assert!(left.is_empty(), "{} {when}: {} {folder} {left:?}", self.name, host.name);
            }
        }
        self.assert_memory_matches_database(running, when).await;
    }

    /// Deletes every server and checks that nothing is left of it.
    pub async fn teardown(&self, running: &RunningCloud, when: &str) {
        running.delete_all_servers().await;
        running.wait_for_host_cleanup(self).await;
        self.assert_empty(running, when).await;
    }
}

/// All providers, with classes and traits sorted: their order may differ.
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

/// The text of the fault of a server in `ERROR`.
pub fn fault(server: &Value) -> &str {
    let fault = &server["fault"];
    fault["details"].as_str().or(fault["message"].as_str()).unwrap_or_default()
}
