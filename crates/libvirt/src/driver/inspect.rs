//! Reads guests: which exist, their console logs, their resource usage.

use std::io::{Read, Seek, SeekFrom};
use std::time::SystemTime;

use kilonova_hypervisor::{DomainState, Error, NAMESPACE, Step};
use kilonova_ids::ServerId;
use kilonova_node_api::{DiskUsage, Usage};
use roxmltree::Document;
use virt::connect::Connect;
use virt::domain::Domain;
use virt::error::{Error as VirtError, ErrorNumber};
use virt_sys as sys;

use super::{Driver, domain_state};
use crate::connection::{QUICK, has_code};

/// How much of the end of a console log is returned.
const CONSOLE: u64 = 1024 * 1024;
/// Where libvirt keeps the pid files of its guests.
const PROCESSES: &str = "/run/libvirt/qemu";

/// Servers of our domains.
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
            // A domain without our metadata, transient, or just undefined is not ours.
            Err(error)
                if has_code(&error, ErrorNumber::NoDomainMetadata)
                    || has_code(&error, ErrorNumber::OperationInvalid)
                    || has_code(&error, ErrorNumber::NoDomain) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(servers)
}

/// Servers of all running domains, ours or not, in a single call.
pub(super) fn running(connect: &Connect) -> Result<Vec<ServerId>, VirtError> {
    let domains = connect.list_all_domains(sys::VIR_CONNECT_LIST_DOMAINS_RUNNING)?;
    let ids = domains.iter().map(Domain::get_uuid_string).collect::<Result<Vec<_>, _>>()?;
    Ok(ids.iter().filter_map(|id| id.parse().ok()).collect())
}

impl Driver {
    /// The end of the guest's serial console log.
    pub(super) async fn console_log(&self, server: ServerId) -> Result<String, Error> {
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
            Err(error) => Err(Error::new(Step::Inspect, format!("the console log: {error}"))),
        }
    }

    pub(super) async fn usage_of(&self, server: ServerId) -> Result<Usage, Error> {
        let hypervisor = self.host.config.virt_type.as_str();
        self.with(Step::Inspect, QUICK, server, move |_, domain| usage(domain, hypervisor)).await
    }
}

fn usage(domain: &Domain, hypervisor: &str) -> Result<Usage, VirtError> {
    let domain_state = domain_state(domain)?;
    let info = domain.get_info()?;
    let up = domain_state.is_up();
    let mut usage = Usage {
        driver: "libvirt".into(),
        hypervisor: hypervisor.into(),
        hypervisor_os: "linux".into(),
        state: match domain_state {
            DomainState::Running => "running",
            DomainState::Paused => "paused",
            DomainState::Saved => "suspended",
            DomainState::Shutoff | DomainState::MigratedOut | DomainState::Incoming => "shutdown",
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
    let times = crate::sys::vcpu_times(domain, info.nr_virt_cpu)?;
    usage.cpu_ns = times.into_iter().map(|ns| i64::try_from(ns).unwrap_or(i64::MAX)).collect();
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

/// Seconds since libvirt started the guest's process on this host.
fn uptime(name: &str) -> Option<i64> {
    let began = std::fs::metadata(format!("{PROCESSES}/{name}.pid")).ok()?.modified().ok()?;
    let up = SystemTime::now().duration_since(began).ok()?;
    i64::try_from(up.as_secs()).ok()
}

/// Target names of a domain's disks other than CD-ROMs: `vda`.
fn disks(xml: &str) -> Vec<String> {
    let Ok(document) = Document::parse(xml) else { return Vec::new() };
    document
        .descendants()
        .filter(|node| node.has_tag_name("disk") && node.attribute("device") != Some("cdrom"))
        .filter_map(|node| node.children().find(|child| child.has_tag_name("target")))
        .filter_map(|node| node.attribute("dev").map(str::to_owned))
        .collect()
}
