//! `GET /healthz`, `/readyz` and `/healthcheck`, for balancers and supervisors: without a token,
//! and at a cost that does not grow with the number of requests.
//!
//! `/healthz` reports that the process answers; it depends on nothing else, so a supervisor never
//! restarts a process because the database is down. `/readyz` reports that requests may go to this
//! controller: it is not shutting down, the database answers with the schema of this program, and the
//! caches follow the commits of other controllers. `/healthcheck` is the same in the form of
//! oslo.middleware. Answers name no host, user or database: the log has the reason.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use http::{HeaderMap, Method, StatusCode, header};
use kilonova_compute_nodes::{Drain, Phase};
use kilonova_store::{Migration, Store};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::migrations;
use kilonova_changes::Progress;

/// How long an examination of the database is valid.
const FRESH: Duration = Duration::from_secs(1);
/// The time in which the database has to answer.
const BOUND: Duration = Duration::from_secs(1);
/// Maximum time without a complete read of other controllers' commits.
const LAG: Duration = Duration::from_secs(5);
/// Seconds after which a client may retry.
const RETRY_AFTER: &str = "1";

/// The health of this process; cheap to clone.
#[derive(Clone)]
pub(super) struct Health(Arc<Inner>);

struct Inner {
    store: Store,
    drain: Drain,
    progress: Option<Progress>,
    schema: Vec<&'static str>,
    examined: watch::Sender<Option<(Instant, Database)>>,
    /// The examination in progress: one at a time, so that a silent database blocks only one thread.
    examination: Mutex<Option<JoinHandle<()>>>,
    /// True while examinations fail.
    failing: AtomicBool,
}

/// The state of the database at an examination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Database {
    /// It answers, and has the schema of this program.
    Current,
    /// It lacks migrations of this program, for example after an old backup was restored.
    Outdated,
    /// A newer program has removed a part of the schema that this program needs.
    Contracted,
    /// It returns an error.
    Unavailable,
    /// It does not answer in time.
    Silent,
}

/// The checks of readiness. The reason of each is `None` if it passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Readiness {
    drain: Option<&'static str>,
    database: Option<&'static str>,
    schema: Option<&'static str>,
    changes: Option<&'static str>,
}

impl Readiness {
    fn of(phase: Phase, database: Database, lag: Duration) -> Self {
        Self {
            drain: (phase > Phase::Serving).then_some("the controller stops"),
            database: match database {
                Database::Current | Database::Outdated | Database::Contracted => None,
                Database::Unavailable => Some("the database is not available"),
                Database::Silent => Some("the database does not answer in time"),
            },
            schema: match database {
                Database::Outdated => Some("the database lacks migrations of this program"),
                Database::Contracted => Some("the database belongs to a newer program"),
                Database::Current | Database::Unavailable | Database::Silent => None,
            },
            changes: (lag > LAG)
                .then_some("the caches do not keep up with other controllers' commits"),
        }
    }

    fn checks(self) -> [(&'static str, Option<&'static str>); 4] {
        [
            ("drain", self.drain),
            ("database", self.database),
            ("schema", self.schema),
            ("changes", self.changes),
        ]
    }

    /// The reason of the first check that fails.
    fn failure(self) -> Option<&'static str> {
        self.checks().into_iter().find_map(|(_, reason)| reason)
    }
}

impl Health {
    /// The health of a process with this database; `progress` follows the change log.
    pub(super) fn new(store: Store, drain: Drain, progress: Option<Progress>) -> Self {
        let schema = migrations().iter().map(|migration| migration.name).collect();
        let (examined, examination) = (watch::channel(None).0, Mutex::default());
        let failing = AtomicBool::new(false);
        Self(Arc::new(Inner { store, drain, progress, schema, examined, examination, failing }))
    }

    /// The routes; they need no authentication.
    pub(super) fn routes(&self) -> Router {
        Router::new()
            .route("/healthz", get(alive))
            .route("/readyz", get(ready))
            .route("/healthcheck", get(healthcheck))
            .with_state(self.clone())
    }

    async fn readiness(&self) -> Readiness {
        let database = self.database().await;
        let lag = self.0.progress.as_ref().map_or(Duration::ZERO, Progress::lag);
        Readiness::of(self.0.drain.phase(), database, lag)
    }

    /// The state of the database, at most [`FRESH`] old.
    async fn database(&self) -> Database {
        let mut examined = self.0.examined.subscribe();
        if let Some((at, database)) = *examined.borrow_and_update()
            && at.elapsed() < FRESH
        {
            return database;
        }
        self.examine();
        match tokio::time::timeout(BOUND, examined.changed()).await {
            Ok(Ok(())) => (*examined.borrow()).map_or(Database::Silent, |(_, database)| database),
            Ok(Err(_)) | Err(_) => Database::Silent,
        }
    }

    /// Starts an examination unless one is in progress.
    fn examine(&self) {
        let mut examination = self.0.examination.lock().unwrap_or_else(PoisonError::into_inner);
        if examination.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let health = self.clone();
        *examination = Some(tokio::spawn(async move {
            let applied = health.0.store.applied().await;
            let failed = health.0.failing.swap(applied.is_err(), Ordering::Relaxed);
            if failed && applied.is_ok() {
                tracing::info!("the database can be read again");
            }
            let database = match applied {
                Ok(applied) => {
                    let schema = &health.0.schema;
                    let has = |name: &&str| applied.iter().any(|have| have == name);
                    let lacks = |name: &&String| !schema.contains(&name.as_str());
                    if !schema.iter().all(has) {
                        Database::Outdated
                    } else if applied.iter().filter(lacks).any(|name| Migration::contracts(name)) {
                        Database::Contracted
                    } else {
                        Database::Current
                    }
                }
                Err(error) => {
                    if failed {
                        tracing::debug!(%error, "still cannot read the database");
                    } else {
                        tracing::warn!(%error, "not ready: cannot read the database");
                    }
                    Database::Unavailable
                }
            };
            health.0.examined.send_replace(Some((Instant::now(), database)));
        }));
    }
}

async fn alive() -> &'static str {
    "ok\n"
}

async fn ready(State(health): State<Health>) -> Response {
    let readiness = health.readiness().await;
    let checks: serde_json::Map<_, _> = readiness
        .checks()
        .into_iter()
        .map(|(name, reason)| (name.to_owned(), json!(reason.unwrap_or("ok"))))
        .collect();
    match readiness.failure() {
        None => Json(json!({"status": "ready", "checks": checks})).into_response(),
        Some(reason) => {
            let body = json!({"status": "not ready", "message": reason, "checks": checks});
            let retry = [(header::RETRY_AFTER, RETRY_AFTER)];
            (StatusCode::SERVICE_UNAVAILABLE, retry, Json(body)).into_response()
        }
    }
}

/// The answer of oslo.middleware's `healthcheck`: one reason in plain text or, if the client accepts only
/// JSON, in a list. HEAD has its own status.
async fn healthcheck(State(health): State<Health>, method: Method, headers: HeaderMap) -> Response {
    let failure = health.readiness().await.failure();
    let status = match (failure, &method) {
        (Some(_), _) => StatusCode::SERVICE_UNAVAILABLE,
        (None, &Method::HEAD) => StatusCode::NO_CONTENT,
        (None, _) => StatusCode::OK,
    };
    let reason = failure.unwrap_or("OK");
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let json = accept.is_some_and(|types| {
        types.contains("application/json") && !types.contains("text/") && !types.contains("*/*")
    });
    let mut answer = match json {
        _ if method == Method::HEAD => status.into_response(),
        true => (status, Json(json!({"detailed": false, "reasons": [reason]}))).into_response(),
        false => (status, reason).into_response(),
    };
    if failure.is_some() {
        let retry = http::HeaderValue::from_static(RETRY_AFTER);
        answer.headers_mut().insert(header::RETRY_AFTER, retry);
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failing_check_is_the_reason() {
        let ready = Readiness::of(Phase::Serving, Database::Current, LAG);
        assert_eq!(ready.failure(), None);
        for (phase, database, lag, reason) in [
            (Phase::Draining, Database::Silent, Duration::ZERO, "the controller stops"),
            (Phase::Serving, Database::Silent, Duration::ZERO, "does not answer"),
            (Phase::Serving, Database::Unavailable, LAG * 2, "not available"),
            (Phase::Serving, Database::Outdated, Duration::ZERO, "lacks migrations"),
            (Phase::Serving, Database::Current, LAG * 2, "do not keep up"),
        ] {
            let failure = Readiness::of(phase, database, lag).failure();
            assert!(failure.is_some_and(|text| text.contains(reason)), "{reason}: {failure:?}");
        }
    }
}
