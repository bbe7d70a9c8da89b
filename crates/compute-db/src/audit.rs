//! The rules of the ledger as SQL: each statement returns the violations of its rule,
//! in a column `broken`.
//!
//! The tests, the crash runs and `kilonova doctor` share these statements. The rules of a single
//! service come from that service; the rules across services are here, the only place that reads
//! tables of several services. This module must never write.

use jiff::SignedDuration;
use kilonova_store::{Error, Store, params};
use kilonova_wire::time;

use crate::{counted, fits, port_claims};

/// Rules across services.
pub const ACROSS: &[(&str, &str)] = &[
    (
        "an instance with our own accelerator requests is an existing server",
        "SELECT c.id AS broken FROM consumers c LEFT JOIN servers s ON s.id = c.id
         WHERE c.consumer_type = 'INSTANCE' AND s.id IS NULL
         AND EXISTS (SELECT 1 FROM arqs a WHERE a.consumer_id = c.id AND a.internal = 1)",
    ),
    (
        "a migration with allocations holds claims on a host for an existing server",
        "SELECT c.id AS broken FROM consumers c LEFT JOIN moves m ON m.id = c.id
         LEFT JOIN servers s ON s.id = m.server_id
         WHERE c.consumer_type = 'MIGRATION' AND (m.held_on IS NULL OR s.id IS NULL)
         AND (m.id IS NOT NULL OR EXISTS (
             SELECT 1 FROM arqs a WHERE a.consumer_id = c.id AND a.internal = 1))",
    ),
    (
        "a closed migration holds claims only until its host has removed or restored the guest",
        "SELECT m.id AS broken FROM moves m JOIN consumers c ON c.id = m.id
         LEFT JOIN documents d ON d.server_id = m.server_id AND d.host = m.held_on
         WHERE m.open_server IS NULL AND (d.server_id IS NULL
             OR (d.body <> '{\"state\":\"absent\"}'
                 AND (m.dest_host IS NULL OR m.dest_host <> m.source_host)))",
    ),
    (
        "one of our own accelerator requests belongs to an existing server or migration",
        "SELECT a.uuid AS broken FROM arqs a LEFT JOIN servers s ON s.id = a.consumer_id
         LEFT JOIN moves m ON m.id = a.consumer_id
         WHERE a.internal = 1 AND s.id IS NULL AND m.id IS NULL",
    ),
    (
        "a server's devices are on its host or on the destination of its migration",
        "SELECT a.uuid AS broken FROM arqs a JOIN servers s ON s.id = a.consumer_id
         LEFT JOIN moves m ON m.open_server = s.id
         WHERE a.host <> s.host AND (m.dest_host IS NULL OR a.host <> m.dest_host)",
    ),
    (
        "a migration's devices are on the host where it holds claims",
        "SELECT a.uuid AS broken FROM arqs a JOIN moves m ON m.id = a.consumer_id
         WHERE m.held_on IS NULL OR a.host <> m.held_on",
    ),
    (
        "an open migration belongs to an existing server",
        "SELECT m.id AS broken FROM moves m LEFT JOIN servers s ON s.id = m.open_server
         WHERE m.open_server IS NOT NULL AND s.id IS NULL",
    ),
    (
        "a server waits for confirmation only while its migration is open",
        "SELECT s.id AS broken FROM servers s LEFT JOIN moves m ON m.open_server = s.id
         WHERE s.vm_state = 'resized' AND m.id IS NULL
         AND (s.task_state IS NULL OR s.task_state <> 'deleting')",
    ),
    (
        "a server has allocations exactly when it is on a host, unless it only waits for releases by other services",
        "SELECT s.id AS broken FROM servers s LEFT JOIN consumers c ON c.id = s.id
         LEFT JOIN operations o ON o.open_subject = s.id AND o.step = 'release'
         WHERE (s.host IS NULL OR o.id IS NOT NULL) <> (c.id IS NULL)",
    ),
    (
        "a server on a host has a document there, unless it only waits for releases by other services",
        "SELECT s.id AS broken FROM servers s LEFT JOIN documents d ON d.server_id = s.id AND d.host = s.host
         LEFT JOIN operations o ON o.open_subject = s.id AND o.step = 'release'
         WHERE s.host IS NOT NULL AND d.server_id IS NULL AND o.id IS NULL",
    ),
    (
        "a server with volumes has a row in volume_servers, and an attachment has a device",
        "SELECT d.id AS broken FROM block_devices d LEFT JOIN volume_servers v
         ON v.server_id = d.server_id WHERE v.server_id IS NULL
         UNION ALL SELECT a.id AS broken FROM volume_attachments a LEFT JOIN block_devices d
         ON d.id = a.device_id WHERE d.id IS NULL",
    ),
    (
        "a document that requests a guest belongs to an existing server",
        "SELECT d.server_id AS broken FROM documents d LEFT JOIN servers s ON s.id = d.server_id
         WHERE s.id IS NULL AND d.body <> '{\"state\":\"absent\"}'",
    ),
    (
        "a dirty handle waits for its host to remove the guest of its last consumer",
        "SELECT h.uuid AS broken FROM attach_handles h JOIN deployables p ON p.id = h.deployable_id
         JOIN devices v ON v.id = p.device_id
         LEFT JOIN moves m ON m.id = h.dirty_of
         LEFT JOIN documents d ON d.server_id = COALESCE(m.server_id, h.dirty_of)
             AND d.host = v.host
         WHERE h.dirty_of IS NOT NULL AND (d.server_id IS NULL
             OR d.body <> '{\"state\":\"absent\"}')",
    ),
    (
        "a shelved or soft-deleted server has a row in resting, and every such row has a server",
        "SELECT s.id AS broken FROM servers s LEFT JOIN resting r ON r.server_id = s.id
         WHERE s.vm_state IN ('shelved', 'shelved_offloaded', 'soft-delete') AND r.server_id IS NULL
         AND (s.task_state IS NULL OR s.task_state <> 'deleting')
         UNION ALL SELECT r.server_id FROM resting r LEFT JOIN servers s ON s.id = r.server_id
         WHERE s.id IS NULL",
    ),
    (
        "a server's port belongs to an existing server and is on its host",
        "SELECT p.id AS broken FROM ports p LEFT JOIN servers s ON s.id = p.server_id
         WHERE p.server_id IS NOT NULL AND (s.id IS NULL OR COALESCE(s.host, '') <> p.host)",
    ),
    (
        "a port's device is an accelerator request for that port, of its server and on its host",
        "SELECT p.id AS broken FROM ports p LEFT JOIN arqs a ON a.uuid = p.arq_id
         WHERE p.arq_id IS NOT NULL AND (a.uuid IS NULL OR a.port_id <> p.id
             OR a.server_id <> p.server_id OR a.host <> p.host)",
    ),
    (
        "an accelerator request for a port is for a port of its server",
        "SELECT a.uuid AS broken FROM arqs a LEFT JOIN ports p ON p.id = a.port_id
         JOIN servers s ON s.id = a.server_id
         WHERE a.port_id IS NOT NULL AND (p.id IS NULL OR p.server_id <> a.server_id)",
    ),
    (
        "a server with ports in Neutron exists, or its ports are being released",
        "SELECT e.server_id AS broken FROM external_servers e LEFT JOIN servers s ON s.id = e.server_id
         WHERE e.is_gone = 0 AND s.id IS NULL
         UNION ALL SELECT e.server_id FROM external_servers e WHERE e.is_gone = 1 AND e.due_at IS NULL",
    ),
    (
        "a document that is held back waits for ports that are being bound",
        "SELECT d.server_id AS broken FROM documents d
         LEFT JOIN external_servers e ON e.server_id = d.server_id
         WHERE d.held = 1 AND e.due_at IS NULL",
    ),
    (
        "a document that waits for volumes is due for a worker, or waits for another host to release them",
        "SELECT d.server_id AS broken FROM documents d
         LEFT JOIN volume_servers v ON v.server_id = d.server_id
         WHERE d.lacks_volumes = 1 AND v.due_at IS NULL AND NOT EXISTS (
             SELECT 1 FROM volume_attachments a
             JOIN documents o ON o.server_id = a.server_id AND o.host = a.host
             WHERE a.server_id = d.server_id AND a.host <> d.host)",
    ),
    (
        "an open operation belongs to an existing server",
        "SELECT o.id AS broken FROM operations o LEFT JOIN servers s ON s.id = o.open_subject
         WHERE o.open_subject IS NOT NULL AND s.id IS NULL",
    ),
    (
        "a server that is being built or changed has an open operation",
        "SELECT s.id AS broken FROM servers s LEFT JOIN operations o ON o.open_subject = s.id
         WHERE (s.vm_state = 'building' OR s.task_state IS NOT NULL) AND o.id IS NULL",
    ),
    (
        "the units of a device that our consumers have allocated equal the handles that they own there",
        "SELECT a.provider_id AS broken FROM (
             SELECT al.provider_id, CAST(SUM(al.used) AS BIGINT) AS units FROM allocations al
             JOIN consumers c ON c.id = al.consumer_id LEFT JOIN servers s ON s.id = c.id
             LEFT JOIN moves m ON m.id = c.id WHERE s.id IS NOT NULL OR m.id IS NOT NULL
             GROUP BY al.provider_id) a
         JOIN deployables d ON d.provider_id = a.provider_id
         WHERE a.units <> (SELECT COUNT(*) FROM arqs q WHERE q.provider_id = a.provider_id
             AND q.internal = 1)",
    ),
];

/// The time after which [`LATE`] rules hold.
const LATE_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// Rules about instances of an external Nova, which needs several calls where we need one commit.
/// They apply to rows that have not changed since a time (`?1`).
pub const LATE: &[(&str, &str)] = &[
    (
        "an external instance whose accelerator request is bound has an allocation of the device",
        "SELECT a.uuid || ' of instance ' || a.server_id AS broken FROM arqs a
         LEFT JOIN allocations l ON l.consumer_id = a.consumer_id AND l.provider_id = a.provider_id
         WHERE a.internal = 0 AND a.state = 'Bound' AND a.updated_at < ?1 AND l.consumer_id IS NULL",
    ),
    (
        "the allocations of a device leave room for external requests that are bound without one",
        "SELECT i.provider_id AS broken FROM (SELECT a.provider_id, COUNT(*) AS handles FROM arqs a
             LEFT JOIN allocations l ON l.consumer_id = a.consumer_id AND l.provider_id = a.provider_id
             WHERE a.internal = 0 AND a.state = 'Bound' AND a.updated_at < ?1
               AND l.consumer_id IS NULL GROUP BY a.provider_id) b
         JOIN inventories i ON i.provider_id = b.provider_id WHERE i.used + b.handles > i.total",
    ),
];

/// The remedy for a violation of a [`LATE`] rule.
const LATE_REMEDY: &str = "the instance's Nova never released the device. With [nova] set, the controller asks that \
    Nova and unbinds the request within minutes if the instance is gone; the log says why it cannot ask. \
    Otherwise delete the instance there, or send DELETE /v2/accelerator_requests?instance=ID to the \
    accelerator API with a service token";

/// The result of a rule.
#[derive(Debug)]
pub struct Finding {
    /// The rule.
    pub rule: &'static str,
    /// The violations.
    pub rows: Vec<String>,
    /// The operator's remedy, if there is one.
    pub remedy: Option<&'static str>,
}

/// Checks every rule on one snapshot.
///
/// # Errors
/// Store errors only.
pub async fn run(store: &Store) -> Result<Vec<Finding>, Error> {
    store
        .read(|tx| {
            let mut findings = Vec::new();
            for rules in [
                kilonova_placement::AUDIT,
                kilonova_accelerator::ledger::AUDIT,
                kilonova_network::ledger::AUDIT,
                ACROSS,
                &[counted::AUDIT],
                fits::AUDIT,
                port_claims::AUDIT,
            ] {
                for (rule, sql) in rules {
                    let rows = tx.rows(sql, params![])?;
                    let rows =
                        rows.iter().map(|row| row.string("broken")).collect::<Result<_, _>>()?;
                    findings.push(Finding { rule, rows, remedy: None });
                }
            }
            let rows = fits::misplaced(tx).map_err(|crate::Error::Store(error)| error)?;
            findings.push(Finding { rule: fits::CELLS_AUDIT.0, rows, remedy: None });
            for (rule, sql) in LATE {
                let rows = tx.rows(sql, params![time::before(time::now(), LATE_AFTER)])?;
                let rows = rows.iter().map(|row| row.string("broken")).collect::<Result<_, _>>()?;
                findings.push(Finding { rule, rows, remedy: Some(LATE_REMEDY) });
            }
            Ok(findings)
        })
        .await
}
