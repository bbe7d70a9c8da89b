//! `kilonova rebalance`.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::Format;
use crate::cloud::{CloudArgs, Compute, ComputeError};
use crate::failure::Failure;
use crate::operate::rebalance;

/// Arguments of `rebalance`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["plan", "apply"]))]
pub struct RebalanceArgs {
    /// Show the moves and what they would gain. Changes nothing.
    #[arg(long)]
    plan: bool,
    /// Perform the moves, one after the other. May be interrupted and run again.
    #[arg(long)]
    apply: bool,
    /// Make room for more servers of this flavor, by id or name [default: lower the cost of the hosts].
    #[arg(long, value_name = "FLAVOR", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    flavor: Option<String>,
    /// With --apply: seconds to wait. A requested move continues after that.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    timeout: u32,
    #[command(flatten)]
    cloud: CloudArgs,
    /// Output format.
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

pub(super) fn run(options: RebalanceArgs) -> Result<ExitCode, Failure> {
    let flavor = options.flavor.as_deref();
    super::runtime()?.block_on(async {
        let compute = Compute::open(&options.cloud).await?;
        if options.apply {
            let timeout = Duration::from_secs(options.timeout.into());
            let report = rebalance::apply(&compute, flavor, timeout).await?;
            match options.format {
                Format::Table => super::say(&report.text())?,
                Format::Json => super::say(&format!("{}\n", report.json()))?,
            }
            return Ok(ExitCode::from(report.exit_code()));
        }
        let plan = rebalance::query(&compute, flavor).await.map_err(ComputeError::fatal)?;
        match options.format {
            Format::Table => super::say(&rebalance::page(&plan))?,
            Format::Json => super::say(&format!("{plan}\n"))?,
        }
        Ok(ExitCode::SUCCESS)
    })
}
