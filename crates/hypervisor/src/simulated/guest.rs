//! A simulated guest: it changes its state, logs that on its console, and has a disk that describes
//! its origin.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::SystemTime;

use kilonova_ids::ServerId;
use kilonova_node_api::{Attachment, DiskUsage, GpuInstance, GuestVerb, Usage};

use super::{Simulated, failed, unknown};
use crate::{Definition, DomainState, Error, Step, write_atomically};

impl Simulated {
    /// Changes a guest from one of the states `from` to `to`. Succeeds if it is already in `to`.
    pub(super) async fn change(
        &self,
        step: Step,
        server: ServerId,
        from: &[DomainState],
        to: DomainState,
    ) -> Result<(), Error> {
        let Some((name, was)) = self.guest(server) else { return Err(unknown(step, server)) };
        if was == to {
            return Ok(());
        }
        if !from.contains(&was) {
            return Err(Error::new(step, format!("{name} is {}", words(was))));
        }
        self.plan.step(step, &name).await?;
        let console_output = if was == DomainState::Shutoff && to.is_up() {
            boot_lines(&self.definition(server, step)?)
        } else {
            format!("[kilonova] {step}: {} -> {}\n", words(was), words(to))
        };
        let mut guests = self.guests();
        let guest = guests.get_mut(&server).ok_or_else(|| unknown(step, server))?;
        self.files.append_console(server, &console_output).map_err(failed(step))?;
        self.files.set_state(server, was, to).map_err(failed(step))?;
        guest.state = to;
        if !to.is_up() {
            self.consoles.end(server);
        }
        Ok(())
    }

    pub(super) async fn restart(&self, server: ServerId) -> Result<(), Error> {
        let step = Step::Reboot;
        let Some((name, state)) = self.guest(server) else { return Err(unknown(step, server)) };
        if state != DomainState::Running {
            return Err(Error::new(step, format!("{name} is {}", words(state))));
        }
        self.plan.step(step, &name).await?;
        let console_output = boot_lines(&self.definition(server, step)?);
        self.files.append_console(server, &console_output).map_err(failed(step))
    }

    pub(super) async fn carry_out_verb(
        &self,
        server: ServerId,
        verb: GuestVerb,
    ) -> Result<(), Error> {
        let step = Step::Verb(verb);
        let Some((name, state)) = self.guest(server) else { return Err(unknown(step, server)) };
        if !state.is_up() {
            return Err(Error::new(step, format!("{name} is {}", words(state))));
        }
        self.plan.step(step, &name).await?;
        let console_output = match verb {
            GuestVerb::CrashDump => "NMI received, crash dump written",
        };
        self.files
            .append_console(server, &format!("[kilonova] {console_output}\n"))
            .map_err(failed(step))
    }

    pub(super) async fn copy_disk(&self, server: ServerId, file: PathBuf) -> Result<(), Error> {
        let step = Step::Snapshot;
        let Some((name, _)) = self.guest(server) else { return Err(unknown(step, server)) };
        self.plan.step(step, &name).await?;
        let boot = self.definition(server, step)?.config.boot;
        let or_none = |id: Option<String>| id.unwrap_or_else(|| "none".to_owned());
        let disk = format!(
            "simulated disk\nserver={server}\nimage={}\nrebuilt={}\nroot_gb={}\n",
            or_none(boot.image.map(|id| id.to_string())),
            or_none(boot.rebuilt.map(|id| id.to_string())),
            boot.root_gb
        );
        write_atomically(&file, disk.as_bytes()).map_err(failed(step))
    }

    /// The usage of a guest that neither computes nor reads from disks.
    pub(super) fn usage_of(&self, server: ServerId) -> Result<Usage, Error> {
        let step = Step::Inspect;
        let Some((_, state)) = self.guest(server) else { return Err(unknown(step, server)) };
        let definition = self.definition(server, step)?;
        let uptime = if state.is_up() {
            let since = self.files.since(server).map_err(failed(step))?;
            SystemTime::now().duration_since(since).unwrap_or_default().as_secs()
        } else {
            0
        };
        Ok(Usage {
            driver: "simulated".into(),
            hypervisor: "simulated".into(),
            hypervisor_os: "linux".into(),
            state: words(state).into(),
            uptime: i64::try_from(uptime).unwrap_or(i64::MAX),
            cpu_ns: vec![0; usize::try_from(definition.config.vcpus).unwrap_or_default()],
            memory_mb: definition.config.memory_mb,
            memory_used_mb: if state.is_up() { definition.config.memory_mb } else { 0 },
            disks: vec![DiskUsage { name: "vda".into(), ..DiskUsage::default() }],
        })
    }

    pub(super) fn definition(&self, server: ServerId, step: Step) -> Result<Definition, Error> {
        let xml = self.files.read(server).map_err(failed(step))?;
        Definition::from_xml(&xml)
    }
}

fn words(state: DomainState) -> &'static str {
    match state {
        DomainState::Shutoff => "shutdown",
        DomainState::Running => "running",
        DomainState::Paused => "paused",
        DomainState::Saved => "suspended",
        DomainState::MigratedOut => "on another host",
        DomainState::Incoming => "awaited",
    }
}

/// The console output of a start.
fn boot_lines(definition: &Definition) -> String {
    let mut console_output = String::new();
    // Writing to a string cannot fail.
    let _ =
        writeln!(console_output, "[kilonova] simulated guest {} starts", definition.config.name);
    let _ = writeln!(
        console_output,
        "[kilonova] {} cpus, {} MiB",
        definition.config.vcpus, definition.config.memory_mb
    );
    let _ = match (&definition.config.rescue, definition.config.boot.image) {
        (Some(rescue), _) => match rescue.image {
            Some(image) => {
                writeln!(
                    console_output,
                    "[kilonova] rescue disk of image {image}, root disk attached"
                )
            }
            None => writeln!(console_output, "[kilonova] empty rescue disk, root disk attached"),
        },
        (None, Some(image)) => writeln!(console_output, "[kilonova] root disk of image {image}"),
        (None, None) => writeln!(console_output, "[kilonova] empty root disk"),
    };
    for device in &definition.config.devices {
        let _ = match device {
            Attachment::Mdev { uuid, mdev_type, .. } => {
                writeln!(console_output, "[kilonova] device: mdev {uuid} of {mdev_type}")
            }
            Attachment::Pci { address } => {
                writeln!(console_output, "[kilonova] device: pci {address}")
            }
            Attachment::Vfio { address, vgpu_type, instance: None } => {
                writeln!(console_output, "[kilonova] device: vfio {address} of {vgpu_type}")
            }
            Attachment::Vfio { address, vgpu_type, instance: Some(instance) } => {
                let GpuInstance { card, profile, place } = instance;
                writeln!(
                    console_output,
                    "[kilonova] device: vfio {address} of {vgpu_type} on {profile} from slice {} of {card}",
                    place.start
                )
            }
            Attachment::TestPci { address } => {
                writeln!(console_output, "[kilonova] device: test {address}")
            }
        };
    }
    let _ = writeln!(console_output, "{} login:", definition.config.display_name);
    console_output
}
