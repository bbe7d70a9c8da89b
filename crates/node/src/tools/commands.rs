//! The tools of a real host: the vendors' programs for their cards, and the operator's commands.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kilonova_devices::{Cleanup, Disk, PciAddress, Sysfs};

use super::run::Run;
use super::{Function, Load, ToolError, ToolFuture, Tools};
use kilonova_ids::HostName;

/// Time limit for programming a card.
const LOADING: Duration = Duration::from_secs(600);
const FPGACONF: &str = "fpgaconf";
const XBMGMT: &str = "/opt/xilinx/xrt/bin/xbmgmt";

/// The tools of a real host.
pub struct Commands {
    host: HostName,
    sysfs: Arc<dyn Sysfs>,
    cleanup: Cleanup,
}

impl Commands {
    /// The tools of a host, with the operator's cleaning commands.
    pub fn new(host: HostName, sysfs: Arc<dyn Sysfs>, cleanup: Cleanup) -> Self {
        Self { host, sysfs, cleanup }
    }
}

impl Tools for Commands {
    fn load<'a>(&'a self, load: Load<'a>) -> ToolFuture<'a> {
        Box::pin(async move { loader(load)?.wait().await })
    }

    fn clean<'a>(&'a self, function: Function<'a>) -> ToolFuture<'a> {
        Box::pin(async move {
            match hook(&self.host, &self.cleanup, function, false) {
                Some(run) => run.wait().await,
                None => erase(&*self.sysfs, function.address, self.cleanup.timeout()).await,
            }
        })
    }
}

/// The operator's cleaning command for a function, if there is one.
pub(crate) fn hook(
    host: &HostName,
    cleanup: &Cleanup,
    function: Function<'_>,
    simulated: bool,
) -> Option<Hook> {
    let (program, arguments) = cleanup.command(function.resource_class)?.split_first()?;
    let mut environment = vec![
        ("KILONOVA_HOST", host.to_string()),
        ("KILONOVA_ADDRESS", function.address.to_owned()),
        ("KILONOVA_RESOURCE_CLASS", function.resource_class.to_string()),
    ];
    if simulated {
        environment.push(("KILONOVA_SIMULATED", "1".to_owned()));
    }
    Some(Hook(Run {
        program: program.clone(),
        arguments: arguments.to_vec(),
        environment,
        limit: cleanup.timeout(),
    }))
}

/// An operator's command, ready to run.
pub(crate) struct Hook(Run);

impl Hook {
    pub(crate) async fn wait(self) -> Result<String, ToolError> {
        self.0.wait().await
    }
}

fn tool(program: &str, arguments: Vec<String>, limit: Duration) -> Run {
    Run { program: program.to_owned(), arguments, environment: Vec::new(), limit }
}

/// The vendor's tool for a card.
fn loader(load: Load<'_>) -> Result<Run, ToolError> {
    let wrong = |why: String| ToolError::new(why);
    let place = PciAddress::parse(load.device)
        .ok_or_else(|| wrong(format!("{} is not a PCI function", load.device)))?;
    let file = load.file.display().to_string();
    let arguments = match load.driver {
        "intel" => {
            let mut arguments: Vec<String> = vec![
                "--bus".into(),
                format!("0x{:02x}", place.bus),
                "--device".into(),
                format!("0x{:02x}", place.device),
                "--function".into(),
                format!("0x{:x}", place.function),
            ];
            if place.domain != 0 {
                arguments.extend(["--segment".into(), format!("0x{:04x}", place.domain)]);
            }
            arguments.push(file);
            return Ok(tool(FPGACONF, arguments, LOADING));
        }
        "xilinx" => ["program", "--device", &place.to_string(), "--base", "--image", &file]
            .map(str::to_owned)
            .to_vec(),
        other => return Err(wrong(format!("cards with driver {other} cannot be programmed"))),
    };
    Ok(tool(XBMGMT, arguments, LOADING))
}

/// Cleans an NVMe function, with a format command if nvme-cli is installed, otherwise by writing
/// zeros.
async fn erase(sysfs: &dyn Sysfs, address: &str, limit: Duration) -> Result<String, ToolError> {
    let disk = Disk::of(sysfs, address).map_err(ToolError::new)?;
    if is_there("nvme") {
        let device = format!("/dev/{}", disk.controller);
        let arguments = ["format", &device, "--namespace-id=0xffffffff", "--ses=1", "--force"];
        return tool("nvme", arguments.map(str::to_owned).to_vec(), limit).wait().await;
    }
    if !is_there("blkdiscard") {
        return Err(ToolError::new(
            "neither nvme (nvme-cli) nor blkdiscard (util-linux) is installed; install \
             one, or set [devices] cleanup_command",
        ));
    }
    let mut output = String::new();
    for namespace in &disk.namespaces {
        let arguments = ["--zeroout", "--force", &format!("/dev/{namespace}")];
        let arguments = arguments.map(str::to_owned).to_vec();
        output.push_str(&tool("blkdiscard", arguments, limit).wait().await?);
    }
    Ok(output)
}

/// True if a program is in PATH.
fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| Path::new(&folder).join(program).is_file())
}

#[cfg(test)]
mod tests {
    use kilonova_devices::Bitstream;

    use super::*;

    fn line(device: &str, driver: &str) -> Result<String, ToolError> {
        let bitstream = Bitstream::default();
        let file = Path::new("/run/one.gbs");
        let run = loader(Load { device, driver, file, bitstream: &bitstream })?;
        Ok(format!("{} {}", run.program, run.arguments.join(" ")))
    }

    #[test]
    fn vendor_tools_get_card_and_file() {
        assert_eq!(
            line("0000:5e:00.0", "intel").as_deref(),
            Ok("fpgaconf --bus 0x5e --device 0x00 --function 0x0 /run/one.gbs")
        );
        assert_eq!(
            line("0001:5e:1f.7", "intel").as_deref(),
            Ok("fpgaconf --bus 0x5e --device 0x1f --function 0x7 --segment 0x0001 /run/one.gbs")
        );
        assert_eq!(
            line("0000:3b:00.0", "xilinx").as_deref(),
            Ok(
                "/opt/xilinx/xrt/bin/xbmgmt program --device 0000:3b:00.0 --base --image /run/one.gbs"
            )
        );
        assert!(line("0000:3b:00.0", "inspur").is_err());
        assert!(line("mtty_mtty", "intel").is_err());
    }

    #[tokio::test]
    async fn a_missing_tool_is_named() {
        let bitstream = Bitstream::default();
        let file = Path::new("/nowhere/one.xsabin");
        let load = Load { device: "0000:3b:00.0", driver: "xilinx", file, bitstream: &bitstream };
        let unfit = loader(load)
            .expect("the card has a tool")
            .wait()
            .await
            .expect_err("the tool is missing");
        assert!(unfit.message.contains("/opt/xilinx/xrt/bin/xbmgmt"), "{}", unfit.message);
    }
}
