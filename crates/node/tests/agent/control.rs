//! A controller in memory.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kilonova_ids::{HostName, ImageId, ServerId};
use kilonova_node_api::{
    Batch, Chunk, ConsoleAnswer, ConsoleRequest, ControlFuture, ControlPlane, Desired, DiskFormat,
    Document, Filters, Observation, Order, OrderResult, Outcome, PasswordAnswer, PasswordRequest,
    Question, Refusal, Registration, Reply, Session, VendordataAnswer, VendordataRequest,
};
use tokio::sync::watch;

const TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Default)]
pub struct State {
    pub registrations: Vec<Registration>,
    pub observations: Vec<Observation>,
    pub documents: BTreeMap<ServerId, Document>,
    /// The servers whose document is held back.
    pub held: Vec<ServerId>,
    /// Open device orders.
    pub orders: Vec<Order>,
    /// Results of orders.
    pub carried: Vec<OrderResult>,
    /// Questions about guests.
    pub questions: Vec<(i64, Question)>,
    /// The replies.
    pub replies: Vec<Reply>,
    /// The passwords that guests have set.
    pub passwords: BTreeMap<ServerId, String>,
    /// The answers of the operator's vendor data services; `None` if one fails.
    pub vendordata: Option<serde_json::Map<String, serde_json::Value>>,
    /// Number of requests for vendor data.
    pub vendordata_requests: u32,
    /// The packet filters, sent with every batch.
    pub filters: Option<Filters>,
    /// The bytes of images.
    pub images: BTreeMap<ImageId, Vec<u8>>,
    /// Number of calls that are still answered with `Unavailable`.
    pub unavailable: u32,
    /// Number of polls that are still refused, so that the agent registers again.
    pub forgotten: u32,
    /// True while the host cannot offer its CPUs and memory by NUMA cell.
    pub undivided: bool,
    /// The reason for rejecting registrations, if set.
    pub rejected: Option<String>,
    pub generation: i64,
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
        let result = change(&mut self.state.lock().expect("the lock is not poisoned"));
        self.changed.send_replace(());
        result
    }

    /// Writes a document and returns its generation.
    pub fn want(&self, server: ServerId, desired: Desired) -> i64 {
        self.with(|state| {
            state.generation += 1;
            let generation = state.generation;
            state.documents.insert(server, Document { server, generation, desired });
            generation
        })
    }

    /// Returns to an earlier generation, with an older document of a server and without later documents or any
    /// observations, like a restored database.
    pub fn go_back(&self, server: ServerId, generation: i64, desired: Desired) {
        self.with(|state| {
            (state.generation, state.forgotten) = (generation, 1);
            state.observations.clear();
            state.documents.retain(|_, document| document.generation <= generation);
            state.documents.insert(server, Document { server, generation, desired });
        });
    }

    /// Adds a device order.
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

    /// Simulates a registration by another process.
    pub fn fence(&self) {
        self.with(|state| state.epoch += 1);
    }

    /// Waits for a condition.
    pub async fn until<T>(&self, what: &str, look: impl Fn(&State) -> Option<T>) -> T {
        let mut changed = self.changed.subscribe();
        let wait = async {
            loop {
                if let Some(found) = look(&self.state.lock().expect("the lock is not poisoned")) {
                    return found;
                }
                changed.changed().await.expect("the controller still exists");
            }
        };
        match tokio::time::timeout(TIMEOUT, wait).await {
            Ok(found) => found,
            Err(_) => panic!("{what} did not happen"),
        }
    }

    /// The result of a generation.
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
    fn register(&self, registration: Registration) -> ControlFuture<'_, Session> {
        Box::pin(async move {
            self.with(|state| {
                Self::check(state, None)?;
                if let Some(why) = &state.rejected {
                    return Err(Refusal::Rejected(why.clone()));
                }
                state.epoch += 1;
                state.registrations.push(registration);
                Ok(Session { epoch: state.epoch, undivided: state.undivided })
            })
        })
    }

    fn desired<'a>(
        &'a self,
        _host: &'a HostName,
        epoch: i64,
        since: i64,
    ) -> ControlFuture<'a, Batch> {
        Box::pin(async move {
            let mut changed = self.changed.subscribe();
            let deadline = tokio::time::Instant::now() + Duration::from_millis(200);
            loop {
                {
                    let mut state = self.state.lock().expect("the lock is not poisoned");
                    Self::check(&mut state, Some(epoch))?;
                    if state.forgotten > 0 {
                        state.forgotten -= 1;
                        return Err(Refusal::Rejected("the documents are lost".into()));
                    }
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
                            held: if since == 0 { state.held.clone() } else { Vec::new() },
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
                            consoles: Vec::new(),
                            filters: state.filters.clone().map(Box::new),
                            routers: None,
                            register: false,
                        });
                    }
                }
                let _ = tokio::time::timeout_at(deadline, changed.changed()).await;
            }
        })
    }

    fn observed<'a>(
        &'a self,
        _host: &'a HostName,
        epoch: i64,
        observations: Vec<Observation>,
    ) -> ControlFuture<'a, ()> {
        Box::pin(async move {
            self.with(|state| {
                Self::check(state, Some(epoch))?;
                state.observations.extend(observations);
                Ok(())
            })
        })
    }

    fn report_orders<'a>(
        &'a self,
        _host: &'a HostName,
        epoch: i64,
        carried: Vec<OrderResult>,
    ) -> ControlFuture<'a, ()> {
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
        _host: &'a HostName,
        epoch: i64,
        image: ImageId,
        offset: u64,
    ) -> ControlFuture<'a, Chunk> {
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

    fn upload_image<'a>(
        &'a self,
        _host: &'a HostName,
        epoch: i64,
        image: ImageId,
        _format: DiskFormat,
        file: PathBuf,
    ) -> ControlFuture<'a, ()> {
        Box::pin(async move {
            self.with(|state| {
                Self::check(state, Some(epoch))?;
                let bytes = std::fs::read(&file).map_err(|e| Refusal::Rejected(e.to_string()))?;
                state.images.insert(image, bytes);
                Ok(())
            })
        })
    }

    fn guest_password<'a>(
        &'a self,
        _host: &'a HostName,
        epoch: i64,
        request: PasswordRequest,
    ) -> ControlFuture<'a, PasswordAnswer> {
        Box::pin(async move {
            self.with(|state| {
                Self::check(state, Some(epoch))?;
                if !state.documents.contains_key(&request.server) {
                    return Ok(PasswordAnswer::NoServer);
                }
                let known = state.passwords.get(&request.server).cloned();
                Ok(match (known, request.set) {
                    (known, None) => PasswordAnswer::Is { text: known.unwrap_or_default() },
                    (Some(_), Some(_)) => PasswordAnswer::Exists,
                    (None, Some(text)) => {
                        state.passwords.insert(request.server, text);
                        PasswordAnswer::Stored
                    }
                })
            })
        })
    }

    fn vendordata<'a>(
        &'a self,
        _host: &'a HostName,
        epoch: i64,
        request: VendordataRequest,
    ) -> ControlFuture<'a, VendordataAnswer> {
        Box::pin(async move {
            self.with(|state| {
                Self::check(state, Some(epoch))?;
                state.vendordata_requests += 1;
                Ok(match (&state.vendordata, state.documents.contains_key(&request.server)) {
                    (_, false) => VendordataAnswer::NoServer,
                    (Some(answers), true) => VendordataAnswer::Are { answers: answers.clone() },
                    (None, true) => VendordataAnswer::Failed,
                })
            })
        })
    }

    fn answer_console<'a>(
        &'a self,
        _host: &'a HostName,
        _request: &'a ConsoleRequest,
        _answer: ConsoleAnswer,
    ) -> ControlFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn report_replies<'a>(
        &'a self,
        _host: &'a HostName,
        epoch: i64,
        replies: Vec<Reply>,
    ) -> ControlFuture<'a, ()> {
        Box::pin(async move {
            self.with(|state| {
                Self::check(state, Some(epoch))?;
                state.replies.extend(replies);
                Ok(())
            })
        })
    }
}
