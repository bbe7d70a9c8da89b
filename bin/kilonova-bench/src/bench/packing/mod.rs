//! Measures how many requests of a trace can be placed: by Kilonova's own policy
//! (`kilonova-packing`) and by two published ones, FGD and BestFit, which are implemented only
//! here.
//!
//! No server runs. There are two tests with traces: a *replay* without departures, as in the FGD paper
//! (Weng et al., USENIX ATC 2023), and *churn*, in which requests arrive and depart until the cloud is
//! in a steady state. A third test, without a trace, cuts cards into MIG instances.

mod churn;
mod mig;
mod policy;
mod random;
mod replay;
mod trace;

use std::path::{Path, PathBuf};
use std::time::Instant;

use kilonova_packing::{Demand, Model, Profile, Shape};
use kilonova_program::Failure;

pub use self::mig::CardSource;
use self::policy::Policy;
use self::trace::{Published, Trace};
use super::table::{Aim, Table};

/// The compared policies; the last one is Kilonova's.
const POLICIES: [Policy; 3] = [Policy::BestFit, Policy::Fgd, Policy::Kilonova];

/// The size of the benchmark.
pub struct Size {
    /// The hosts: `sn,cpu_milli,memory_mib,gpu,model`.
    pub hosts: PathBuf,
    /// Requests, one workload for each file: `name,cpu_milli,memory_mib,num_gpu,gpu_milli[,gpu_spec…]`.
    pub workloads: Vec<PathBuf>,
    /// Published results for comparison:
    /// `workload,policy,seeds,alloc_pct_at_100,alloc_pct_at_130,…`.
    pub published: Option<PathBuf>,
    /// The number of replays of each workload.
    pub seeds: u64,
    /// Runs the churn test on one in this many hosts; `None` runs the replay.
    pub churn: Option<usize>,
    /// The weights of the cost.
    pub weights: kilonova_packing::Weights,
}

/// Compares cards whose MIG profile is fixed with cards that change it and with mixed ones.
///
/// # Errors
/// When the geometry of the cards is invalid, and when the database fails.
pub fn mig(of: CardSource, mix: &str, cards: usize, seeds: u64) -> Result<Table, Failure> {
    mig::run(of, mix, cards, seeds).map_err(|why| Failure::failed("cannot cut the cards", why))
}

/// Runs one of the tests on each workload. Returns its tables.
///
/// # Errors
/// When a file cannot be read.
pub fn run(size: &Size) -> Result<Vec<Table>, Failure> {
    let mut trace = Trace::read(&size.hosts)?;
    let published = size.published.as_deref().map(Published::read).transpose()?.unwrap_or_default();
    let mut tables = Vec::new();
    for file in &size.workloads {
        let requests = trace.requests(file)?;
        let name = workload(file);
        tables.push(match size.churn {
            None => replayed(&name, &trace, &requests, size, &published),
            Some(part) => churned(&name, &trace, &requests, size, part.max(1)),
        });
    }
    Ok(tables)
}

/// `default` of `openb_pod_list_default.csv`.
fn workload(file: &Path) -> String {
    let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    stem.strip_prefix("openb_pod_list_").map_or(stem.clone(), str::to_owned)
}

fn replayed(
    name: &str,
    trace: &Trace,
    requests: &[Shape],
    size: &Size,
    published: &Published,
) -> Table {
    let profile = profile(requests, &trace.supply(trace.hosts()));
    let figures = POLICIES.map(|policy| {
        let scorer = policy.scorer(&profile, size.weights);
        let begun = Instant::now();
        let runs: Vec<replay::Outcome> = (0..size.seeds.max(1))
            .map(|seed| replay::run(trace, requests, policy, &scorer, seed))
            .collect();
        [
            mean(runs.iter().map(|run| run.at_capacity)),
            mean(runs.iter().map(|run| run.at_end)),
            microseconds(begun, runs.iter().map(|run| run.decisions)),
        ]
    });
    let title = format!(
        "Replay of {name}: {} hosts, {} seeds, requests for 130 % of the devices",
        trace.hosts().len(),
        size.seeds.max(1)
    );
    let mut table = Table::new(title, POLICIES.map(|policy| policy.name().to_owned()));
    let aim =
        published.figure(name, "FGD").map(|figure| Aim::Least(figure + published.margin(name)));
    table.row("devices allocated, 100 % requested", "%", None, column(&figures, 0));
    table.row("devices allocated, 130 % requested", "%", None, column(&figures, 1));
    table.row("Kilonova minus published FGD", "%", aim, own(&figures, 1));
    let known = POLICIES.map(|policy| published.figure(name, policy.name()));
    table.row("published", "%", None, known);
    table.row("time for a decision", "us", None, column(&figures, 2));
    table
}

fn churned(name: &str, trace: &Trace, requests: &[Shape], size: &Size, part: usize) -> Table {
    let figures = POLICIES.map(|policy| {
        let begun = Instant::now();
        let runs: Vec<churn::Outcome> = (0..size.seeds.max(1))
            .map(|seed| churn::run(trace, requests, policy, size.weights, seed, part))
            .collect();
        [
            mean(runs.iter().map(|run| run.allocated)),
            mean(runs.iter().map(|run| run.accepted)),
            microseconds(begun, runs.iter().map(|run| run.decisions)),
        ]
    });
    let title = format!(
        "Churn of {name}: one host in {part}, {} seeds, 110 % of the devices requested at any time",
        size.seeds.max(1)
    );
    let mut table = Table::new(title, POLICIES.map(|policy| policy.name().to_owned()));
    let [_, fgd, _] = &figures;
    table.row("devices allocated, mean over time", "%", None, column(&figures, 0));
    table.row("Kilonova beside FGD", "%", Some(Aim::Least(fgd[0])), own(&figures, 0));
    table.row("requests accepted", "%", None, column(&figures, 1));
    table.row("time for a request, with its end", "us", None, column(&figures, 2));
    table
}

/// One of the figures of each policy.
fn column(figures: &[[f64; 3]; 3], at: usize) -> [Option<f64>; 3] {
    figures.map(|of_policy| Some(of_policy[at]))
}

/// One of the figures of Kilonova, for a comparison.
fn own(figures: &[[f64; 3]; 3], at: usize) -> [Option<f64>; 3] {
    [None, None, Some(figures[2][at])]
}

/// The time of a decision, wall clock.
fn microseconds(begun: Instant, decisions: impl Iterator<Item = usize>) -> f64 {
    begun.elapsed().as_secs_f64() * 1e6 / decisions.sum::<usize>().max(1) as f64
}

fn mean(figures: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = figures.len().max(1) as f64;
    figures.sum::<f64>() / count
}

/// The complete demand of a workload, which the published policies assume to be known.
fn profile(requests: &[Shape], supply: &[(Model, u32)]) -> Profile {
    let mut demand = Demand::default();
    requests.iter().for_each(|request| demand.record(*request, 1.0));
    demand.profile(supply)
}
