//! `kilonova capacity`.

use std::process::ExitCode;

use clap::Args;

use super::Format;
use crate::cloud::{CloudArgs, Compute, ComputeError};
use crate::failure::Failure;
use crate::operate::{capacity, text};

/// Arguments of `capacity`.
#[derive(Debug, Args)]
pub struct CapacityArgs {
    /// Count for this flavor only, by id or name [default: all flavors].
    #[arg(long, value_name = "FLAVOR", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    flavor: Option<String>,
    #[command(flatten)]
    cloud: CloudArgs,
    /// Output format.
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

pub(super) fn run(options: CapacityArgs) -> Result<ExitCode, Failure> {
    let flavor = options.flavor.as_deref().map(text::segment);
    let path = flavor.map_or_else(
        || "/kilonova/capacity".to_owned(),
        |flavor| format!("/kilonova/capacity?flavor={flavor}"),
    );
    let answer = super::runtime()?.block_on(async {
        let compute = Compute::open(&options.cloud).await?;
        compute.get(&path).await.map_err(ComputeError::fatal)
    })?;
    match options.format {
        Format::Table => super::say(&capacity::page(&answer["capacity"]))?,
        Format::Json => super::say(&format!("{}\n", answer["capacity"]))?,
    }
    Ok(ExitCode::SUCCESS)
}
