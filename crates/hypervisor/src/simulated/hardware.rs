//! The machine type of a simulated guest. The file `machine_type` in the host's directory contains the one that the host
//! gives new guests (`[libvirt] hw_machine_type` of a real host). Without it, guests have none.

use super::files::Files;
use crate::Definition;

const START: &str = "<os><type machine='";
const END: &str = "'/></os>\n";
const LAST: &str = "</domain>\n";

/// The machine type of a guest's next definition: that of its domain, unless it is rebuilt; otherwise the one that another
/// host chose, or this host's. An image that names one is not simulated.
pub(super) fn next(files: &Files, old: Option<&str>, next: &Definition) -> Option<String> {
    if next.config.machine.machine_type.is_some() {
        return None;
    }
    let rebuilt = |xml: &str| Definition::from_xml(xml).map(|old| old.config.boot.rebuilt);
    let kept = match old {
        Some(old) if rebuilt(old) == Ok(next.config.boot.rebuilt) => {
            machine_type(old).map(str::to_owned)
        }
        Some(_) => None,
        None => next.kept_machine_type.clone(),
    };
    kept.or_else(|| files.machine_type())
}

/// The domain's XML with its machine type.
pub(super) fn record(xml: String, machine_type: Option<&str>) -> String {
    match (machine_type, xml.strip_suffix(LAST)) {
        (Some(machine_type), Some(start)) => format!("{start}  {START}{machine_type}{END}{LAST}"),
        (Some(_) | None, _) => xml,
    }
}

/// The machine type in a domain's XML.
pub(super) fn machine_type(xml: &str) -> Option<&str> {
    let (_, rest) = xml.rsplit_once(START)?;
    rest.split_once(END).map(|(machine_type, _)| machine_type)
}
