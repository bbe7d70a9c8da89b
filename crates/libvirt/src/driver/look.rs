//! What can be seen of guests: which there are, what they say, what they use.

use std::io::{Read, Seek, SeekFrom};
use std::time::SystemTime;

use kilonova_hypervisor::{Error, Life, NAMESPACE, Step};
use kilonova_ids::ServerId;
use kilonova_node_api::{DiskUsage, Usage};
use roxmltree::Document;
use virt::connect::Connect;
use virt::domain::Domain;
use virt::error::{Error as VirtError, ErrorNumber};
use virt_sys as sys;

use super::{Driver, life};
use crate::connection::{QUICK, is};

/// Of a console log, the last bytes that are given.
const CONSOLE: u64 = 1024 * 1024;
/// Where libvirt keeps the numbers of its guests' processes.
const PROCESSES: &str = "/run/libvirt/qemu";

/// Servers of the domains that are ours.
pub(super) fn servers(connect: &Connect) -> Result<Vec<ServerId>, VirtError> {
    let mut servers = Vec::new();
    for domain in connect.list_all_domains(0)? {
        let ours = domain.get_metadata(
            sys::VIR_DOMAIN_METADATA_ELEMENT as i32,
            Some(NAMESPACE),
            sys::VIR_DOMAIN_AFFECT_CONFIG,
        );
        match ours {
            Ok(_) => servers.extend(domain.get_uuid_string()?.parse::<ServerId>().ok()),
            // A domain without, or one that is kept nowhere or has gone: not ours.
            Err(error)
                if is(&error, ErrorNumber::NoDomainMetadata)
                    || is(&error, ErrorNumber::OperationInvalid)
                    || is(&error, ErrorNumber::NoDomain) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(servers)
}

/// Servers of the domains that run, also of those that are not ours: a question of one answer.
pub(super) fn running(connect: &Connect) -> Result<Vec<ServerId>, VirtError> {
    let domains = connect.list_all_domains(sys::VIR_CONNECT_LIST_DOMAINS_RUNNING)?;
    let ids = domains.iter().map(Domain::get_uuid_string).collect::<Result<Vec<_>, _>>()?;
    Ok(ids.iter().filter_map(|id| id.parse().ok()).collect())
}

impl Driver {
    /// The end of what the guest said on its serial line.
    pub(super) async fn said(&self, server: ServerId) -> Result<String, Error> {
        let path = self.disks.volumes(server).console;
        let read = move || -> std::io::Result<String> {
            let mut file = std::fs::File::open(path)?;
            let size = file.metadata()?.len();
            file.seek(SeekFrom::Start(size.saturating_sub(CONSOLE)))?;
            let mut bytes = Vec::new();
            file.take(CONSOLE).read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        match tokio::task::spawn_blocking(read).await.unwrap_or_else(|error| Err(error.into())) {
            Ok(text) => Ok(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(Error::new(Step::Look, format!("the console log: {error}"))),
        }
    }

    pub(super) async fn used(&self, server: ServerId) -> Result<Usage, Error> {
        let hypervisor = self.host.config.virt_type.as_str();
        self.with(Step::Look, QUICK, server, move |_, domain| usage(domain, hypervisor)).await
    }
}

fn usage(domain: &Domain, hypervisor: &str) -> Result<Usage, VirtError> {
    let life = life(domain)?;
    let info = domain.get_info()?;
    let up = life.is_up();
    let mut usage = Usage {
        driver: "libvirt".into(),
        hypervisor: hypervisor.into(),
        hypervisor_os: "linux".into(),
        state: match life {
            Life::Running => "running",
            Life::Paused => "paused",
            Life::Saved => "suspended",
            Life::Off | Life::Left | Life::Incoming => "shutdown",
        }
        .into(),
        memory_mb: mebi(info.max_mem),
        memory_used_mb: if up { mebi(info.memory) } else { 0 },
        ..Usage::default()
    };
    if !up {
        return Ok(usage);
    }
    usage.uptime = uptime(&domain.get_name()?).unwrap_or_default();
    let worked = crate::sys::processor_times(domain, info.nr_virt_cpu)?;
    usage.cpu_ns = worked.into_iter().map(|ns| i64::try_from(ns).unwrap_or(i64::MAX)).collect();
    for name in disks(&domain.get_xml_desc(0)?) {
        let stats = domain.get_block_stats(&name)?;
        usage.disks.push(DiskUsage {
            name,
            read_bytes: stats.rd_bytes,
            read_requests: stats.rd_req,
            write_bytes: stats.wr_bytes,
            write_requests: stats.wr_req,
            errors: stats.errs.max(0),
        });
    }
    Ok(usage)
}

fn mebi(kibi: u64) -> i64 {
    i64::try_from(kibi / 1024).unwrap_or(i64::MAX)
}

/// Seconds since libvirt started the guest's process here.
fn uptime(name: &str) -> Option<i64> {
    let began = std::fs::metadata(format!("{PROCESSES}/{name}.pid")).ok()?.modified().ok()?;
    let up = SystemTime::now().duration_since(began).ok()?;
    i64::try_from(up.as_secs()).ok()
}

/// Names of a domain's disks that are no discs: `vda`.
fn disks(xml: &str) -> Vec<String> {
    let Ok(document) = Document::parse(xml) else { return Vec::new() };
    document
        .descendants()
        .filter(|node| node.has_tag_name("disk") && node.attribute("device") != Some("cdrom"))
        .filter_map(|node| node.children().find(|child| child.has_tag_name("target")))
        .filter_map(|node| node.attribute("dev").map(str::to_owned))
        .collect()
}
