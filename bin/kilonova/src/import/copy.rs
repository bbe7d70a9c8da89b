//! The contents of the other Placement, read over its API and compared with this one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kilonova_ids::{ConsumerId, ProviderId, ResourceClass};
use kilonova_placement::Error;
use kilonova_placement::app::import::{self, ConsumerCopy, ProviderCopy};
use kilonova_store::Store;
use tokio::task::JoinSet;

use super::source::Source;
use crate::failure::Failure;
use crate::progress::Progress;

/// Concurrent requests.
const ASKING: usize = 8;
/// Rows per read transaction.
const CHUNK: usize = 200;

/// The contents of the other Placement.
#[derive(Default)]
pub struct PlacementCopy {
    /// All class names.
    pub classes: Vec<ResourceClass>,
    /// Names of custom traits.
    pub traits: Vec<String>,
    /// Trees, parents before children.
    pub trees: Vec<Vec<ProviderCopy>>,
    /// Consumers.
    pub consumers: Vec<ConsumerCopy>,
}

impl PlacementCopy {
    /// Reads the other Placement.
    pub async fn read(source: &Arc<Source>, progress: &mut Progress) -> Result<Self, Failure> {
        let (classes, traits) = source.names().await?;
        let bare = source.providers().await?;
        progress.begin("providers read", bare.len());
        let mut holders: BTreeSet<ConsumerId> = BTreeSet::new();
        let mut providers = Vec::with_capacity(bare.len());
        let asked = each(bare, source, progress, |source, mut copy: ProviderCopy| async move {
            let held = source.read_details(&mut copy).await?;
            Ok((copy, held))
        });
        for (copy, held) in asked.await? {
            holders.extend(held);
            providers.push(copy);
        }
        progress.begin("consumers read", holders.len());
        let asked =
            each(holders.into_iter().collect(), source, progress, |source, id| async move {
                source.consumer(id).await
            });
        let consumers = asked.await?.into_iter().flatten().collect();
        Ok(Self { classes, traits, trees: trees(providers), consumers })
    }

    /// All providers.
    pub fn providers(&self) -> impl Iterator<Item = &ProviderCopy> {
        self.trees.iter().flatten()
    }

    /// True if the other Placement has changed since, judging by its providers' names, parents and generations.
    pub async fn is_old(&self, source: &Arc<Source>) -> Result<bool, Failure> {
        let shown = |providers: &mut dyn Iterator<Item = &ProviderCopy>| -> BTreeMap<_, _> {
            providers.map(|p| (p.id, (p.name.clone(), p.parent, p.generation))).collect()
        };
        let now = source.providers().await?;
        Ok(shown(&mut now.iter()) != shown(&mut self.providers()))
    }

    /// The differences from this database, as messages.
    pub async fn differences(&self, store: &Store) -> Result<Vec<String>, Failure> {
        let mut found = Vec::new();
        let providers: Vec<ProviderCopy> = self.providers().cloned().collect();
        let holders: BTreeSet<ConsumerId> = self.consumers.iter().map(|c| c.id).collect();
        for chunk in providers.chunks(CHUNK) {
            let (chunk, holders) = (chunk.to_vec(), holders.clone());
            let more = store.read(move |tx| -> Result<_, Error> {
                let mut found = Vec::new();
                for copy in &chunk {
                    match import::read_provider(tx, copy.id)? {
                        None => found.push(format!("provider {} is missing here", copy.id)),
                        Some(have) if have != *copy => found.push(format!(
                            "provider {} ({}) differs: {}",
                            copy.id,
                            copy.name,
                            provider_difference(copy, &have)
                        )),
                        Some(_) => {}
                    }
                    for consumer in import::consumers_of(tx, copy.id)?.difference(&holders) {
                        found.push(format!(
                            "consumer {consumer} has allocations on provider {} here but not there",
                            copy.id
                        ));
                    }
                }
                Ok(found)
            });
            found.extend(more.await.map_err(|e| Failure::failed("cannot compare", e))?);
        }
        for chunk in self.consumers.chunks(CHUNK) {
            let chunk = chunk.to_vec();
            let more = store.read(move |tx| -> Result<_, Error> {
                let mut found = Vec::new();
                for copy in &chunk {
                    match import::read_consumer(tx, copy.id)? {
                        None => found.push(format!("consumer {} is missing here", copy.id)),
                        Some(have) if have != *copy => found.push(format!(
                            "consumer {} differs: {have:?} here, {copy:?} there",
                            copy.id
                        )),
                        Some(_) => {}
                    }
                }
                Ok(found)
            });
            found.extend(more.await.map_err(|e| Failure::failed("cannot compare", e))?);
        }
        Ok(found)
    }
}

fn provider_difference(there: &ProviderCopy, here: &ProviderCopy) -> String {
    let mut what = Vec::new();
    let mut note = |name: &str, here: String, there: String| {
        if here != there {
            what.push(format!("{name} {here} here, {there} there"));
        }
    };
    note("name", here.name.clone(), there.name.clone());
    note("parent", format!("{:?}", here.parent), format!("{:?}", there.parent));
    note("root", here.root.to_string(), there.root.to_string());
    note("generation", here.generation.to_string(), there.generation.to_string());
    note("inventories", format!("{:?}", here.inventories), format!("{:?}", there.inventories));
    note("traits", format!("{:?}", here.traits), format!("{:?}", there.traits));
    note("aggregates", format!("{:?}", here.aggregates), format!("{:?}", there.aggregates));
    what.join("; ")
}

/// Requests each item, some concurrently; the results keep the order of the items.
async fn each<T, U, F, R>(
    all: Vec<T>,
    source: &Arc<Source>,
    progress: &mut Progress,
    ask: F,
) -> Result<Vec<U>, Failure>
where
    T: Send + 'static,
    U: Send + 'static,
    F: Fn(Arc<Source>, T) -> R + Clone + Send + 'static,
    R: Future<Output = Result<U, Failure>> + Send + 'static,
{
    let count = all.len();
    let mut waiting = all.into_iter().enumerate();
    let mut asked = JoinSet::new();
    let mut answers: BTreeMap<usize, U> = BTreeMap::new();
    while answers.len() < count {
        while asked.len() < ASKING
            && let Some((n, one)) = waiting.next()
        {
            let (source, ask) = (Arc::clone(source), ask.clone());
            asked.spawn(async move { (n, ask(source, one).await) });
        }
        let Some(ended) = asked.join_next().await else { break };
        let (n, answer) = ended.map_err(|e| Failure::failed("a request was lost", e))?;
        answers.insert(n, answer?);
        progress.one();
    }
    Ok(answers.into_values().collect())
}

fn trees(providers: Vec<ProviderCopy>) -> Vec<Vec<ProviderCopy>> {
    let mut below: BTreeMap<Option<ProviderId>, Vec<ProviderCopy>> = BTreeMap::new();
    for copy in providers {
        below.entry(copy.parent).or_default().push(copy);
    }
    let roots = below.remove(&None).unwrap_or_default();
    let mut trees = Vec::with_capacity(roots.len());
    for root in roots {
        let mut tree = vec![root];
        let mut at = 0;
        while let Some(id) = tree.get(at).map(|copy| copy.id) {
            tree.extend(below.remove(&Some(id)).unwrap_or_default());
            at += 1;
        }
        trees.push(tree);
    }
    trees
}
