//! `placement import`: copies another Placement's rows, read over its API, and verifies the copy.
//!
//! It is idempotent: unchanged rows are not written. It removes nothing. The other Placement should
//! not change meanwhile; at the end the import checks that it has not.

mod copy;
mod source;

use std::path::PathBuf;
use std::sync::Arc;

use http::HeaderValue;
use kilonova_keystone::Session;
use kilonova_placement::app::import;
use kilonova_placement::{Error, World};
use kilonova_store::Store;

use crate::cloud::clouds;
use crate::failure::Failure;
use crate::progress::Progress;
use copy::PlacementCopy;
pub use source::Source;
use source::SourceAuth;

/// Trees or consumers per transaction.
const CHUNK: usize = 50;
/// Maximum number of differences to print.
const SHOWN: usize = 50;

/// The source of the import.
pub struct ImportSource {
    /// URL of the other Placement; with a cloud, by default its endpoint.
    pub url: Option<String>,
    /// A token, or a user's name with noauth2.
    pub token: Option<String>,
    /// A cloud of `clouds.yaml`.
    pub cloud: Option<String>,
    /// Path of that file.
    pub clouds: PathBuf,
    /// Authority to trust.
    pub cafile: Option<PathBuf>,
}

/// Runs the import; returns whether the copy is exact.
///
/// # Errors
/// If a source cannot be read or the store cannot be written.
pub async fn run(source: Source, store: &Store) -> Result<bool, Failure> {
    let source = Arc::new(source);
    let mut progress = Progress::new();
    let there = PlacementCopy::read(&source, &mut progress).await?;
    let written = write(&there, store, &mut progress).await?;
    progress.end();
    let mut differences = there.differences(store).await?;
    if there.is_old(&source).await? {
        differences.push(
            "the other Placement was changed meanwhile: stop its users and run this again".into(),
        );
    }
    let held: usize = there.consumers.iter().map(|consumer| consumer.allocations.len()).sum();
    let mut report = format!(
        "{} providers in {} trees, {} custom traits, {} consumers with {held} allocations; {written} \
                 trees and consumers were written, the others were up to date\n",
        there.providers().count(),
        there.trees.len(),
        there.traits.len(),
        there.consumers.len(),
    );
    for difference in differences.iter().take(SHOWN) {
        report.push_str(&format!("difference: {difference}\n"));
    }
    if differences.len() > SHOWN {
        report.push_str(&format!("and {} more\n", differences.len() - SHOWN));
    }
    if differences.is_empty() {
        report.push_str("verified: the copy is exact\n");
    }
    kilonova_program::say_done(&report)?;
    Ok(differences.is_empty())
}

/// Connects to the other Placement. Changes nothing on either side.
///
/// # Errors
/// If it does not answer, or refuses the credentials.
pub async fn open(from: ImportSource) -> Result<Source, Failure> {
    if let Some(token) = from.token {
        let url = from.url.ok_or_else(|| {
            Failure::Refused("set --from to the other Placement's URL, or use --cloud".into())
        })?;
        let mut token = HeaderValue::try_from(token)
            .map_err(|_| Failure::Refused("the token contains invalid characters".into()))?;
        token.set_sensitive(true);
        let http = source::client(from.cafile.as_deref())?;
        return Source::open(http, &url, SourceAuth::Token(token)).await;
    }
    let name = from.cloud.ok_or_else(|| {
        Failure::Refused(
            "no credentials: use --cloud NAME, --token TOKEN (or OS_TOKEN), or --noauth USER"
                .into(),
        )
    })?;
    let cloud = clouds::read(&from.clouds, &name)?;
    let http = source::client(from.cafile.as_deref().or(cloud.cafile.as_deref()))?;
    let session = Session::new(http.clone(), cloud.login);
    let held = session.token().await.map_err(|e| Failure::Refused(e.to_string()))?;
    let url = from.url.or_else(|| endpoint(&held.catalog, cloud.region.as_deref()));
    let url = url.ok_or_else(|| {
        Failure::Refused(format!("cloud {name} has no public placement endpoint; set --from"))
    })?;
    Source::open(http, &url, SourceAuth::Session(Arc::new(session))).await
}

fn endpoint(catalog: &serde_json::Value, region: Option<&str>) -> Option<String> {
    let services = catalog.as_array()?.iter();
    let endpoints = services
        .filter(|service| service["type"] == "placement")
        .flat_map(|service| service["endpoints"].as_array().into_iter().flatten());
    let mut fit = endpoints.filter(|endpoint| {
        endpoint["interface"] == "public" && region.is_none_or(|name| endpoint["region"] == name)
    });
    fit.next()?["url"].as_str().map(str::to_owned)
}

async fn write(
    there: &PlacementCopy,
    store: &Store,
    progress: &mut Progress,
) -> Result<usize, Failure> {
    let cannot = |e: Error| Failure::failed("cannot write the copy", e);
    let world = World::new();
    let (classes, traits) = (there.classes.clone(), there.traits.clone());
    let strange =
        store.write(move |tx| import::ensure_names(tx, &classes, &traits)).await.map_err(cannot)?;
    if !strange.is_empty() {
        return Err(Failure::Failed(format!(
            "the other Placement has standard traits or resource classes that this program does not know: {}. Use a newer kilonova",
            strange.join(", ")
        )));
    }
    let mut written = 0;
    progress.begin("trees written", there.trees.len());
    for chunk in there.trees.chunks(CHUNK) {
        let (world, trees) = (world.clone(), chunk.to_vec());
        let work = store.write(move |tx| -> Result<usize, Error> {
            let mut written = 0;
            for tree in &trees {
                written += usize::from(import::import_tree(tx, &world, tree)?);
            }
            Ok(written)
        });
        written += work.await.map_err(cannot)?;
        chunk.iter().for_each(|_| progress.one());
    }
    progress.begin("consumers written", there.consumers.len());
    for chunk in there.consumers.chunks(CHUNK) {
        let (world, consumers) = (world.clone(), chunk.to_vec());
        let work = store.write(move |tx| -> Result<usize, Error> {
            let mut written = 0;
            for consumer in &consumers {
                written += usize::from(import::import_consumer(tx, &world, consumer)?);
            }
            Ok(written)
        });
        written += work.await.map_err(cannot)?;
        chunk.iter().for_each(|_| progress.one());
    }
    for chunk in there.trees.chunks(CHUNK) {
        let (world, trees) = (world.clone(), chunk.to_vec());
        let work = store.write(move |tx| -> Result<(), Error> {
            trees.iter().try_for_each(|tree| import::remove_unused(tx, &world, tree))
        });
        work.await.map_err(cannot)?;
    }
    Ok(written)
}
