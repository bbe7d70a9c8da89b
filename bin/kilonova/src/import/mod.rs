//! `placement import`: another Placement's rows, read over its API, made ours, and compared.
//!
//! It may be run again: what is the same is not written. It removes nothing that only we have.
//! While it runs nobody should write over there; whether somebody did is looked at in the end.

mod picture;
mod progress;
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
use picture::Picture;
use progress::Progress;
use source::{Door, Source};

/// Trees, and consumers, that are written in one transaction.
const CHUNK: usize = 50;
/// Differences that are printed.
const SHOWN: usize = 50;

/// Where from, and how to get in.
pub struct From {
    /// The other Placement's address; with a cloud, its endpoint when none is named.
    pub url: Option<String>,
    /// A token, or a user's name under noauth2.
    pub token: Option<String>,
    /// A cloud of `clouds.yaml`.
    pub cloud: Option<String>,
    /// Where that file is.
    pub clouds: PathBuf,
    /// Authority to trust.
    pub cafile: Option<PathBuf>,
}

/// Runs it; says whether the copy is exact.
///
/// # Errors
/// What keeps it from being made.
pub async fn run(from: From, store: &Store) -> Result<bool, Failure> {
    let source = Arc::new(open(from).await?);
    let mut progress = Progress::new();
    let there = Picture::read(&source, &mut progress).await?;
    let written = write(&there, store, &mut progress).await?;
    progress.end();
    let mut differences = there.differences(store).await?;
    if there.is_old(&source).await? {
        differences.push(
            "somebody has written to the other Placement meanwhile: stop its users, run this again"
                .into(),
        );
    }
    let held: usize = there.consumers.iter().map(|consumer| consumer.holds.len()).sum();
    println!(
        "{} providers in {} trees, {} custom traits, {} consumers with {held} allocations; {written} \
         trees and consumers were written, the others were here already",
        there.providers().count(),
        there.trees.len(),
        there.traits.len(),
        there.consumers.len(),
    );
    for difference in differences.iter().take(SHOWN) {
        println!("different: {difference}");
    }
    if differences.len() > SHOWN {
        println!("and {} more", differences.len() - SHOWN);
    }
    if differences.is_empty() {
        println!("verified: all of it is here, and the same");
    }
    Ok(differences.is_empty())
}

async fn open(from: From) -> Result<Source, Failure> {
    if let Some(token) = from.token {
        let url = from.url.ok_or_else(|| {
            Failure::Refused("name the other Placement with --from, or a cloud with --cloud".into())
        })?;
        let mut token = HeaderValue::try_from(token)
            .map_err(|_| Failure::Refused("the token has characters that no token has".into()))?;
        token.set_sensitive(true);
        let http = source::client(from.cafile.as_deref())?;
        return Source::open(http, &url, Door::Token(token)).await;
    }
    let name = from.cloud.ok_or_else(|| {
        Failure::Refused(
            "say how to get in: --cloud NAME, --token TOKEN (or OS_TOKEN), or --noauth USER".into(),
        )
    })?;
    let cloud = clouds::read(&from.clouds, &name)?;
    let http = source::client(from.cafile.as_deref().or(cloud.cafile.as_deref()))?;
    let session = Session::new(http.clone(), cloud.login);
    let held = session.token().await.map_err(|e| Failure::Refused(e.to_string()))?;
    let url = from.url.or_else(|| endpoint(&held.catalog, cloud.region.as_deref()));
    let url = url.ok_or_else(|| {
        Failure::Refused(format!("cloud {name} has no public placement endpoint; use --from"))
    })?;
    Source::open(http, &url, Door::Session(Arc::new(session))).await
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

async fn write(there: &Picture, store: &Store, progress: &mut Progress) -> Result<usize, Failure> {
    let cannot = |e: Error| Failure::failed("cannot take it over", e);
    let world = World::new();
    let (classes, traits) = (there.classes.clone(), there.traits.clone());
    let strange =
        store.write(move |tx| import::know(tx, &classes, &traits)).await.map_err(cannot)?;
    if !strange.is_empty() {
        return Err(Failure::Failed(format!(
            "the other Placement has standard names that are newer than this program: {}",
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
                written += usize::from(import::tree(tx, &world, tree)?);
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
                written += usize::from(import::consumer(tx, &world, consumer)?);
            }
            Ok(written)
        });
        written += work.await.map_err(cannot)?;
        chunk.iter().for_each(|_| progress.one());
    }
    for chunk in there.trees.chunks(CHUNK) {
        let (world, trees) = (world.clone(), chunk.to_vec());
        let work = store.write(move |tx| -> Result<(), Error> {
            trees.iter().try_for_each(|tree| import::settle(tx, &world, tree))
        });
        work.await.map_err(cannot)?;
    }
    Ok(written)
}
