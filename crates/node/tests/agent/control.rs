//! A control plane that keeps documents and observations in memory.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kilonova_ids::{ImageId, ServerId};
use kilonova_node_api::{
    Answer, Batch, Carried, Chunk, ControlPlane, Desired, DiskFormat, Document, Filters,
    Observation, Order, Outcome, Question, Refusal, Registration, Reply, Session,
};
use tokio::sync::watch;

const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Default)]
pub struct State {
    pub registrations: Vec<Registration>,
    pub observations: Vec<Observation>,
    pub documents: BTreeMap<ServerId, Document>,
    /// What is to be done to devices and is not done yet.
    pub orders: Vec<Order>,
    /// What came of orders.
    pub carried: Vec<Carried>,
    /// What is asked about guests.
    pub questions: Vec<(i64, Question)>,
    /// What was answered.
    pub replies: Vec<Reply>,
    /// The security groups of its guests, with every answer.
    pub filters: Option<Filters>,
    /// The bytes of images.
    pub images: BTreeMap<ImageId, Vec<u8>>,
    /// Calls that are still answered with `Unavailable`.
    pub unavailable: u32,
    /// Why registrations are rejected, if they are.
    pub rejected: Option<String>,
    generation: i64,
    epoch: i64,
}

pub struct Control {
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

impl Control {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), changed: watch::Sender::new(()) })
    }

    pub fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state.lock().expect("no panic before"));
        self.changed.send_replace(());
        result
    }

    /// Wants something of a server; returns the generation.
    pub fn want(&self, server: ServerId, desired: Desired) -> i64 {
        self.with(|state| {
            state.generation += 1;
            let generation = state.generation;
            state.documents.insert(server, Document { server, generation, desired });
            generation
        })
    }

    /// Wants something done to a device.
    pub fn order(&self, order: Order) {
        self.with(|state| {
            state.generation += 1;
            state.orders.push(Order { generation: state.generation, ..order });
        });
    }

    /// Asks about a guest.
    pub fn ask(&self, question: Question) {
        self.with(|state| {
            state.generation += 1;
            state.questions.push((state.generation, question));
        });
    }

    /// As if another process had registered for the host.
    pub fn fence(&self) {
        self.with(|state| state.epoch += 1);
    }

    /// Waits until something is so.
    pub async fn until<T>(&self, what: &str, look: impl Fn(&State) -> Option<T>) -> T {
        let mut changed = self.changed.subscribe();
        let wait = async {
            loop {
                if let Some(found) = look(&self.state.lock().expect("no panic before")) {
                    return found;
                }
                changed.changed().await.expect("the control plane is there");
            }
        };
        match tokio::time::timeout(PATIENCE, wait).await {
            Ok(found) => found,
            Err(_) => panic!("{what} did not come about"),
        }
    }

    /// What came of a generation; an absence that failed first is waited for.
    pub async fn outcome(&self, generation: i64) -> Outcome {
        self.until(&format!("generation {generation}"), |state| {
            let ended = |one: &&Observation| {
                one.generation == generation && !matches!(one.outcome, Outcome::Working { .. })
            };
            let seen = state.observations.iter().rev().find(ended);
            seen.map(|one| one.outcome.clone())
        })
        .await
    }

    pub async fn expect(&self, generation: i64, outcome: Outcome) {
        self.until(&format!("{outcome:?} of generation {generation}"), |state| {
            let fits = |one: &&Observation| one.generation == generation && one.outcome == outcome;
            state.observations.iter().find(fits).map(|_| ())
        })
        .await;
    }

    pub fn registrations(&self) -> Vec<Registration> {
        self.with(|state| state.registrations.clone())
    }

    fn check(state: &mut State, epoch: Option<i64>) -> Result<(), Refusal> {
        if state.unavailable > 0 {
            state.unavailable -= 1;
            return Err(Refusal::Unavailable("busy".into()));
        }
        match epoch {
            Some(epoch) if epoch != state.epoch => Err(Refusal::Fenced),
            _ => Ok(()),
        }
    }
}

impl ControlPlane for Control {
    fn register(&self, registration: Registration) -> Answer<'_, Session> {
        Box::pin(async move {
            self.with(|state| {
                Self::check(state, None)?;
                if let Some(why) = &state.rejected {
                    return Err(Refusal::Rejected(why.clone()));
                }
                state.epoch += 1;
                state.registrations.push(registration);
                Ok(Session { epoch: state.epoch })
            })
        })
    }

    fn desired<'a>(&'a self, _host: &'a str, epoch: i64, since: i64) -> Answer<'a, Batch> {
        Box::pin(async move {
            let mut changed = self.changed.subscribe();
            let deadline = tokio::time::Instant::now() + Duration::from_millis(200);
            loop {
                {
                    let mut state = self.state.lock().expect("no panic before");
                    Self::check(&mut state, Some(epoch))?;
                    let late = tokio::time::Instant::now() >= deadline;
                    if since == 0 || state.generation > since || late {
                        let mut documents: Vec<Document> = state
                            .documents
                            .values()
                            .filter(|one| one.generation > since)
                            .cloned()
                            .collect();
                        documents.sort_by_key(|one| one.generation);
                        return Ok(Batch {
                            generation: state.generation,
                            complete: since == 0,
                            documents,
                            orders: state
                                .orders
                                .iter()
                                .filter(|one| one.generation > since)
                                .cloned()
                                .collect(),
                            questions: state
                                .questions
                                .iter()
                                .filter(|(generation, _)| *generation > since)
                                .map(|(_, question)| question.clone())
                                .collect(),
                            filters: state.filters.clone().map(Box::new),
                        });
                    }
                }
                let _ = tokio::time::timeout_at(deadline, changed.changed()).await;
            }
        })
    }

    fn observed<'a>(
        &'a self,
        _host: &'a str,
        epoch: i64,
        observations: Vec<Observation>,
    ) -> Answer<'a, ()> {
        Box::pin(async move {
            self.with(|state| {
                Self::check(state, Some(epoch))?;
                state.observations.extend(observations);
                Ok(())
            })
        })
    }

    fn carried_out<'a>(
        &'a self,
        _host: &'a str,
        epoch: i64,
        carried: Vec<Carried>,
    ) -> Answer<'a, ()> {
        Box::pin(async move {
            self.with(|state| {
                Self::check(state, Some(epoch))?;
                let done = |order: &Order| carried.iter().any(|one| one.order == order.id);
                state.orders.retain(|order| !done(order));
                state.carried.extend(carried);
                Ok(())
            })
        })
    }

    fn image<'a>(
        &'a self,
        _host: &'a str,
        epoch: i64,
        image: ImageId,
        offset: u64,
    ) -> Answer<'a, Chunk> {
        const PIECE: usize = 1000;
        Box::pin(async move {
            self.with(|state| {
                Self::check(state, Some(epoch))?;
                let Some(bytes) = state.images.get(&image) else {
                    return Err(Refusal::Rejected(format!("no image {image}")));
                };
                let rest = bytes.iter().skip(usize::try_from(offset).unwrap_or(usize::MAX));
                let size = bytes.len() as u64;
                let bytes = rest.take(PIECE).copied().collect();
                Ok(Chunk { size, bytes, ..Chunk::default() })
            })
        })
    }

    fn keep_image<'a>(
        &'a self,
        _host: &'a str,
        epoch: i64,
        image: ImageId,
        _format: DiskFormat,
        file: PathBuf,
    ) -> Answer<'a, ()> {
        Box::pin(async move {
            self.with(|state| {
                Self::check(state, Some(epoch))?;
                let bytes = std::fs::read(&file).map_err(|e| Refusal::Rejected(e.to_string()))?;
                state.images.insert(image, bytes);
                Ok(())
            })
        })
    }

    fn replied<'a>(&'a self, _host: &'a str, epoch: i64, replies: Vec<Reply>) -> Answer<'a, ()> {
        Box::pin(async move {
            self.with(|state| {
                Self::check(state, Some(epoch))?;
                state.replies.extend(replies);
                Ok(())
            })
        })
    }
}
