//! `kilonova-bench packing`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use kilonova_packing::Weights;
use kilonova_program::Failure;
use serde_json::Value;

use super::Format;
use crate::bench::Table;
use crate::bench::packing::{self, CardSource, Size};

const EXAMPLES: &str = "\
Examples:
  kilonova-bench packing --hosts hosts.csv requests.csv
  kilonova-bench packing --hosts hosts.csv --churn 2 --seeds 2 requests.csv
  kilonova-bench packing --mig 400 --seeds 3
  kilonova-bench packing --mig 120 --seeds 3 --ledger";

/// Options of `kilonova-bench packing`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Packing {
    /// Requests, one workload for each file, with the columns name, cpu_milli, memory_mib, num_gpu, gpu_milli
    /// and optionally gpu_spec.
    #[arg(required_unless_present = "mig", value_name = "FILE")]
    requests: Vec<PathBuf>,
    /// Hosts, with the columns cpu_milli, memory_mib, gpu and model.
    #[arg(long, value_name = "FILE", required_unless_present = "mig")]
    hosts: Option<PathBuf>,
    /// Results of other policies to compare with, with the columns workload, policy and alloc_pct_at_130.
    #[arg(long, value_name = "FILE")]
    published: Option<PathBuf>,
    /// Repetitions, each in another random order.
    #[arg(long, default_value_t = 10)]
    seeds: u64,
    /// Run the churn test on one in this many hosts. Default: the replay on all hosts, without
    /// departures.
    #[arg(long, value_name = "N")]
    churn: Option<usize>,
    /// Compare static, changing and mixed MIG profiles on this many cards; reads no files.
    #[arg(long, value_name = "CARDS", conflicts_with_all = ["requests", "hosts", "published", "churn"])]
    mig: Option<usize>,
    /// Compare them also on simulated hosts, where scheduler and ledger assign the cards; uses SQLite in the
    /// directory for temporary files.
    #[arg(long, requires = "mig")]
    ledger: bool,
    /// Run only the mixes of profiles whose names begin with this text.
    #[arg(long, value_name = "NAME", requires = "mig")]
    mix: Option<String>,
    /// The weights of the cost.
    #[arg(long, value_enum, default_value = "balanced")]
    packing: Set,
    /// Output format.
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

/// A named set of weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Set {
    /// Places the most requests while a cloud fills.
    Fragmentation,
    /// Assigns the most devices, while a cloud fills and in a steady state.
    Balanced,
}

impl Set {
    const fn weights(self) -> Weights {
        match self {
            Self::Fragmentation => Weights::FRAGMENTATION,
            Self::Balanced => Weights::BALANCED,
        }
    }
}

pub(super) fn run(options: Packing) -> Result<ExitCode, Failure> {
    let tables = match options.mig {
        Some(cards) => {
            let mix = options.mix.as_deref().unwrap_or_default();
            let of = [CardSource::Geometry, CardSource::Hosts]
                .into_iter()
                .take(1 + usize::from(options.ledger));
            let tables = of.map(|of| packing::mig(of, mix, cards.max(1), options.seeds));
            tables.collect::<Result<_, _>>()?
        }
        None => packing::run(&Size {
            hosts: options.hosts.unwrap_or_default(),
            workloads: options.requests,
            published: options.published,
            seeds: options.seeds,
            churn: options.churn,
            weights: options.packing.weights(),
        })?,
    };
    if options.format == Format::Json {
        println!("{}", tables.iter().map(Table::json).collect::<Value>());
    } else {
        tables.iter().for_each(|table| println!("{}", table.lines()));
    }
    Ok(ExitCode::SUCCESS)
}
