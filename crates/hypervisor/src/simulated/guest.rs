//! What a simulated guest does: it changes its state, says so on its console, and has a disk that
//! tells what it was made of.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::SystemTime;

use kilonova_ids::ServerId;
use kilonova_node_api::{Attachment, DiskUsage, Usage};

use super::{Simulated, failed, unknown};
use crate::{Definition, Error, Life, Step, write_atomically};

impl Simulated {
    /// Takes a guest from one of some states to another; nothing is to do when it is there.
    pub(super) async fn change(
        &self,
        step: Step,
        server: ServerId,
        from: &[Life],
        to: Life,
    ) -> Result<(), Error> {
        let Some((name, was)) = self.guest(server) else { return Err(unknown(step, server)) };
        if was == to {
            return Ok(());
        }
        if !from.contains(&was) {
            return Err(Error::new(step, format!("{name} is {}", words(was))));
        }
        self.plan.step(step, &name).await?;
        let said = if to == Life::Running && was == Life::Off {
            boot_lines(&self.definition(server, step)?)
        } else {
            format!("[kilonova] {step}: {} -> {}\n", words(was), words(to))
        };
        let mut guests = self.guests();
        let guest = guests.get_mut(&server).ok_or_else(|| unknown(step, server))?;
        self.files.say(server, &said).map_err(failed(step))?;
        self.files.set_life(server, was, to).map_err(failed(step))?;
        guest.life = to;
        Ok(())
    }

    pub(super) async fn restart(&self, server: ServerId) -> Result<(), Error> {
        let step = Step::Reboot;
        let Some((name, life)) = self.guest(server) else { return Err(unknown(step, server)) };
        if life != Life::Running {
            return Err(Error::new(step, format!("{name} is {}", words(life))));
        }
        self.plan.step(step, &name).await?;
        let said = boot_lines(&self.definition(server, step)?);
        self.files.say(server, &said).map_err(failed(step))
    }

    pub(super) async fn interrupt(&self, server: ServerId) -> Result<(), Error> {
        let step = Step::CrashDump;
        let Some((name, life)) = self.guest(server) else { return Err(unknown(step, server)) };
        if !life.is_up() {
            return Err(Error::new(step, format!("{name} is {}", words(life))));
        }
        self.plan.step(step, &name).await?;
        self.files
            .say(server, "[kilonova] NMI received, crash dump written\n")
            .map_err(failed(step))
    }

    pub(super) async fn copy_disk(&self, server: ServerId, file: PathBuf) -> Result<(), Error> {
        let step = Step::Snapshot;
        let Some((name, _)) = self.guest(server) else { return Err(unknown(step, server)) };
        self.plan.step(step, &name).await?;
        let boot = self.definition(server, step)?.boot;
        let or_none = |id: Option<String>| id.unwrap_or_else(|| "none".to_owned());
        let disk = format!(
            "simulated disk\nserver={server}\nimage={}\nrebuilt={}\nroot_gb={}\n",
            or_none(boot.image.map(|id| id.to_string())),
            or_none(boot.rebuilt.map(|id| id.to_string())),
            boot.root_gb
        );
        write_atomically(&file, disk.as_bytes()).map_err(failed(step))
    }

    /// What it uses: it has no processors that work and no disk that is read.
    pub(super) fn used(&self, server: ServerId) -> Result<Usage, Error> {
        let step = Step::Look;
        let Some((_, life)) = self.guest(server) else { return Err(unknown(step, server)) };
        let definition = self.definition(server, step)?;
        let uptime = if life.is_up() {
            let since = self.files.since(server).map_err(failed(step))?;
            SystemTime::now().duration_since(since).unwrap_or_default().as_secs()
        } else {
            0
        };
        Ok(Usage {
            driver: "simulated".into(),
            hypervisor: "simulated".into(),
            hypervisor_os: "linux".into(),
            state: words(life).into(),
            uptime: i64::try_from(uptime).unwrap_or(i64::MAX),
            cpu_ns: vec![0; usize::try_from(definition.vcpus).unwrap_or_default()],
            memory_mb: definition.memory_mb,
            memory_used_mb: if life.is_up() { definition.memory_mb } else { 0 },
            disks: vec![DiskUsage { name: "vda".into(), ..DiskUsage::default() }],
        })
    }

    pub(super) fn definition(&self, server: ServerId, step: Step) -> Result<Definition, Error> {
        let xml = self.files.read(server).map_err(failed(step))?;
        Definition::from_xml(&xml)
    }
}

fn words(life: Life) -> &'static str {
    match life {
        Life::Off => "shutdown",
        Life::Running => "running",
        Life::Paused => "paused",
        Life::Saved => "suspended",
        Life::Left => "on another host",
        Life::Incoming => "awaited",
    }
}

/// What a guest says when it starts.
fn boot_lines(definition: &Definition) -> String {
    let mut said = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(said, "[kilonova] simulated guest {} starts", definition.name);
    let _ = writeln!(said, "[kilonova] {} cpus, {} MiB", definition.vcpus, definition.memory_mb);
    let _ = match (&definition.rescue, definition.boot.image) {
        (Some(rescue), _) => match rescue.image {
            Some(image) => {
                writeln!(said, "[kilonova] rescue disk of image {image}, root disk beside")
            }
            None => writeln!(said, "[kilonova] empty rescue disk, root disk beside"),
        },
        (None, Some(image)) => writeln!(said, "[kilonova] root disk of image {image}"),
        (None, None) => writeln!(said, "[kilonova] empty root disk"),
    };
    for device in &definition.devices {
        let _ = match device {
            Attachment::Mdev { uuid, mdev_type, .. } => {
                writeln!(said, "[kilonova] device: mdev {uuid} of {mdev_type}")
            }
            Attachment::Pci { address } => writeln!(said, "[kilonova] device: pci {address}"),
            Attachment::Vfio { address, vgpu_type } => {
                writeln!(said, "[kilonova] device: vfio {address} of {vgpu_type}")
            }
            Attachment::TestPci { address } => {
                writeln!(said, "[kilonova] device: test {address}")
            }
        };
    }
    let _ = writeln!(said, "{} login:", definition.display_name);
    said
}
