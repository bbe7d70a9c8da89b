//! Multipath maps: one device over several paths.

use std::path::{Path, PathBuf};

use crate::config::{IscsiInitiator, VolumesConfig};
use crate::scsi::{self, ScsiDevice};
use crate::system::{System, arguments, lasting_path};

/// Number of attempts to flush a map before it counts as busy.
const FLUSHES: u32 = 3;

/// True if the options request multipath and `multipathd` answers. The error contains the reason if
/// it does not.
pub(crate) async fn is_available(
    system: &dyn System,
    config: &VolumesConfig,
) -> Result<bool, String> {
    if !config.use_multipath || config.iscsi == IscsiInitiator::Qemu {
        return Ok(false);
    }
    let asked = system.run("multipathd", arguments(&["show", "status"])).await;
    asked.map(|_| true).map_err(|failure| failure.message)
}

/// Waits for the map of these paths. `None` if `multipathd` creates none.
pub(crate) async fn map(
    system: &dyn System,
    config: &VolumesConfig,
    paths: &[ScsiDevice],
) -> Option<String> {
    for attempt in 0..config.scan_tries.max(1) {
        if let Some(map) = paths.iter().find_map(|path| path.map(system)) {
            return Some(map);
        }
        // multipathd may not know the volume yet, or have missed an event.
        if attempt == 1 {
            for path in paths {
                let node = path.node().display().to_string();
                for (program, words) in [
                    ("multipath", arguments(&["-a", &node])),
                    ("multipathd", arguments(&["add", "path", &node])),
                ] {
                    if let Err(failure) = system.run(program, words).await {
                        tracing::debug!(why = %failure.message, "multipath does not know a path");
                    }
                }
            }
        }
        tokio::time::sleep(config.look).await;
    }
    None
}

/// The path of a map ([`lasting_path`]).
pub(crate) async fn node(system: &dyn System, config: &VolumesConfig, map: &str) -> PathBuf {
    let node = Path::new("/dev").join(map);
    let uuid = system.read(&Path::new("/sys/class/block").join(map).join("dm/uuid"));
    let Ok(uuid) = uuid else { return node };
    let lasting = Path::new("/dev/disk/by-id").join(format!("dm-uuid-{}", uuid.trim()));
    lasting_path(system, config, &[lasting], node).await
}

/// Resizes a map to the size of its paths, if it is smaller than expected.
pub(crate) async fn grow(system: &dyn System, map: &str, gib: i64) {
    if scsi::size(system, map).is_none_or(|bytes| bytes >= scsi::bytes_of(gib)) {
        return;
    }
    let Some(name) = name(system, map) else { return };
    let resized = system.run("multipathd", arguments(&["resize", "map", &name])).await;
    if let Err(failure) = resized {
        tracing::warn!(map, why = %failure.message, "could not resize a multipath map");
    }
}

/// Flushes the pending writes of a map and removes it.
pub(crate) async fn flush(
    system: &dyn System,
    config: &VolumesConfig,
    map: &str,
) -> Result<(), String> {
    let Some(name) = name(system, map) else { return Ok(()) };
    // Without a working path, a flush of a queueing map would never end.
    let _ = system.run("multipathd", arguments(&["disablequeueing", "map", &name])).await;
    let mut last = String::new();
    for _ in 0..FLUSHES {
        match system.run("multipath", arguments(&["-f", &name])).await {
            Ok(_) => return Ok(()),
            Err(_) if self::name(system, map).is_none() => return Ok(()),
            Err(failure) => last = failure.message,
        }
        tokio::time::sleep(config.look).await;
    }
    Err(last)
}

fn name(system: &dyn System, map: &str) -> Option<String> {
    let name = system.read(&Path::new("/sys/class/block").join(map).join("dm/name")).ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty() && !name.starts_with('-'))
}
