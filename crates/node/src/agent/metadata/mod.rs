//! Answers metadata requests from the host's guests.
//!
//! A guest sends 20 to 40 requests within seconds while it boots. For the first one, the service
//! reads the guest's definition from the hypervisor and builds a document; it answers the others
//! from memory. It therefore needs a controller only for the password and the operator's vendor
//! data. It rebuilds a document after each change to the guest, and after [`EXPIRY`]. While the
//! hypervisor is unavailable, it uses the last document.
//!
//! A guest gets only its own data: the service finds the server by the request's source address on
//! its network.

mod memory;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use kilonova_guest_metadata::{Answer, Document, MAX_PASSWORD, lookup_versions, texts};
use kilonova_ids::ServerId;
use kilonova_node_api::{
    Filters, Interface, PasswordAnswer, PasswordRequest, Refusal, VendordataAnswer,
    VendordataRequest,
};

use super::work::Work;
use crate::metadata::{
    GuestAnswer, GuestFuture, GuestMethod, GuestRequest, GuestRequests, GuestStatus,
};

pub(super) use memory::Memory;

/// The lifetime of a document. The agent drops it sooner when it changes the guest.
const EXPIRY: Duration = Duration::from_secs(15);
/// How long a guest waits for the hypervisor or the controller.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Number of random bytes in an answer with a seed.
const SEED: usize = 512;

/// Answers the guests of an agent while the agent runs.
pub(super) struct Guests(Weak<Work>);

impl Guests {
    pub(super) fn of(work: &Arc<Work>) -> Arc<Self> {
        Arc::new(Self(Arc::downgrade(work)))
    }
}

impl GuestRequests for Guests {
    fn answer(&self, request: GuestRequest) -> GuestFuture<'_> {
        let work = self.0.upgrade();
        Box::pin(async move {
            let Some(work) = work else { return GuestAnswer::unavailable() };
            match tokio::time::timeout(TIMEOUT, answer(&work, request)).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(Unanswered)) | Err(_) => GuestAnswer::unavailable(),
            }
        })
    }
}

/// Serves the existing guests at startup, before the agent has documents, because the controller
/// may be unavailable.
pub(super) async fn resume(work: &Work) {
    let host = work.host();
    let servers = match work.hypervisor.servers().await {
        Ok(servers) => servers,
        Err(error) => {
            tracing::warn!(%host, %error, "cannot list the guests; they get no metadata yet");
            return;
        }
    };
    let mut guests = BTreeMap::new();
    for server in servers {
        let found = work.hypervisor.domain(server).await.ok().flatten();
        if let Some(Ok(definition)) = found.map(|found| found.definition()) {
            guests.insert(server, definition.config.interfaces);
        }
    }
    work.connections.resume(guests).await;
}

/// The request cannot be answered now; the reason is logged.
struct Unanswered;

async fn answer(work: &Work, request: GuestRequest) -> Result<GuestAnswer, Unanswered> {
    if let Some(answer) = lookup_versions(&request.path) {
        return Ok(found(answer));
    }
    let Some(server) = work.connections.server_at(request.network, request.from) else {
        tracing::debug!(
            host = %work.host(), network = %request.network, from = %request.from,
            "refused a metadata request from an address without a guest"
        );
        return Ok(not_found());
    };
    let Some(mut document) = document(work, server).await? else { return Ok(not_found()) };
    if document.guest.dynamic_vendordata && request.path.contains("vendor_data2") {
        match with_vendordata(work, server, document).await? {
            Ok(complete) => document = complete,
            Err(answer) => return Ok(answer),
        }
    }
    let seed = if request.path.contains("meta_data") { seed() } else { String::new() };
    let today = jiff::Timestamp::now().strftime("%Y-%m-%d").to_string();
    let from = request.from.to_string();
    match document.lookup(&request.path, &seed, &today, Some(&from)) {
        None => Ok(not_found()),
        Some(Answer::Password) => password(work, server, request.method).await,
        Some(answer) => Ok(found(answer)),
    }
}

/// The server's document; `None` if it is not on this host.
async fn document(work: &Work, server: ServerId) -> Result<Option<Arc<Document>>, Unanswered> {
    let known = match work.metadata.get(server) {
        Some((document, age)) if age < EXPIRY => return Ok(Some(document)),
        known => known,
    };
    let version = work.metadata.version();
    let host = work.host();
    let definition = match work.hypervisor.domain(server).await {
        Ok(None) => return Ok(None),
        Ok(Some(found)) => found.definition(),
        Err(error) => Err(error),
    };
    let definition = match (definition, known) {
        (Ok(definition), _) => definition,
        (Err(error), Some((document, _))) => {
            tracing::warn!(%host, %server, %error, "cannot read the definition of a guest; \
                answering from its last document");
            return Ok(Some(document));
        }
        (Err(error), None) => {
            tracing::warn!(%host, %server, %error, "cannot read the definition of a guest that \
                requests metadata");
            return Err(Unanswered);
        }
    };
    let settings = work.metadata.settings();
    let vendordata = settings.vendordata.clone();
    let made = Document::of_guest(server, &definition.config, &settings.dhcp_domain, vendordata);
    let mut document = made.map_err(|error| {
        tracing::error!(%host, %server, %error, "the user data of a guest is not base64");
        Unanswered
    })?;
    let groups = security_groups(&work.connections.filters(), &definition.config.interfaces);
    if let Some(groups) = groups {
        document.security_groups = groups;
    }
    let document = Arc::new(document);
    work.metadata.put(server, &document, version);
    Ok(Some(document))
}

/// The document with the operator's vendor data, which the controller fetches once for each
/// document; or the answer to the guest if there is no vendor data.
async fn with_vendordata(
    work: &Work,
    server: ServerId,
    document: Arc<Document>,
) -> Result<Result<Arc<Document>, GuestAnswer>, Unanswered> {
    if work.metadata.has_vendordata(server, &document) {
        return Ok(Ok(document));
    }
    let answers = match work.link.vendordata(VendordataRequest { server }).await {
        Ok(VendordataAnswer::Are { answers }) => answers,
        Ok(VendordataAnswer::Failed) => {
            return Ok(Err(GuestAnswer::text(GuestStatus::Failed, texts::UNKNOWN)));
        }
        Ok(VendordataAnswer::NoServer) => return Ok(Err(not_found())),
        Err(why) => {
            tracing::warn!(host = %work.host(), %server, %why, "could not get the vendor data of a guest");
            return Err(Unanswered);
        }
    };
    let mut complete = Document::clone(&document);
    complete.vendordata.dynamic = answers;
    let complete = Arc::new(complete);
    work.metadata.complete(server, &document, &complete);
    Ok(Ok(complete))
}

/// The names of the security groups of these interfaces, in their order; `None` if the filters contain
/// none of the ports, for example because the agent has not received the filters yet.
pub(super) fn security_groups(filters: &Filters, interfaces: &[Interface]) -> Option<Vec<String>> {
    let mut names: Option<Vec<String>> = None;
    for interface in interfaces {
        let ports = filters.ports.iter().filter(|port| port.port == interface.port);
        let ports: Vec<_> = ports.collect();
        if ports.is_empty() {
            continue;
        }
        let names = names.get_or_insert_default();
        for id in ports.iter().flat_map(|port| &port.groups) {
            let group = filters.groups.iter().find(|group| group.id == *id);
            let name = group.map(|group| &group.name).filter(|name| !name.is_empty());
            names.extend(name.filter(|name| !names.contains(name)).cloned());
        }
    }
    names
}

async fn password(
    work: &Work,
    server: ServerId,
    method: GuestMethod,
) -> Result<GuestAnswer, Unanswered> {
    let ask = async |set: Option<String>| {
        let answer = work.link.guest_password(PasswordRequest { server, set }).await;
        answer.map_err(|refusal: Refusal| {
            tracing::warn!(
                host = %work.host(), %server, why = %refusal,
                "could not forward a guest's password request"
            );
            Unanswered
        })
    };
    let conflict = || GuestAnswer::text(GuestStatus::Conflict, texts::CONFLICT);
    let bad = |text| GuestAnswer::text(GuestStatus::Bad, text);
    let sent = match method {
        GuestMethod::Get => None,
        GuestMethod::Post(sent) => Some(sent),
        GuestMethod::Other => return Ok(bad(texts::METHODS)),
    };
    let is = match ask(None).await? {
        PasswordAnswer::Is { text } => text,
        PasswordAnswer::NoServer => return Ok(not_found()),
        PasswordAnswer::Stored | PasswordAnswer::Exists => return Err(Unanswered),
    };
    let Some(sent) = sent else { return Ok(GuestAnswer::text(GuestStatus::Found, &is)) };
    // The conflict takes precedence over the size, as in Nova.
    if !is.is_empty() {
        return Ok(conflict());
    }
    let Some(sent) = sent.filter(|sent| sent.len() <= MAX_PASSWORD) else {
        return Ok(bad(texts::TOO_LARGE));
    };
    let text = String::from_utf8(sent).ok().filter(|text| !text.contains('\0'));
    let Some(text) = text else { return Ok(bad(texts::NOT_TEXT)) };
    Ok(match ask(Some(text)).await? {
        PasswordAnswer::Stored => GuestAnswer::text(GuestStatus::Found, ""),
        PasswordAnswer::Exists => conflict(),
        PasswordAnswer::NoServer => not_found(),
        PasswordAnswer::Is { .. } => return Err(Unanswered),
    })
}

fn found(answer: Answer) -> GuestAnswer {
    match answer {
        Answer::Body(kind, body) => GuestAnswer { status: GuestStatus::Found, kind, body },
        // The caller handles the password before this call.
        Answer::Password => not_found(),
    }
}

fn not_found() -> GuestAnswer {
    GuestAnswer::text(GuestStatus::NotFound, texts::NOT_FOUND)
}

/// Fresh random bytes for a guest, in base64.
fn seed() -> String {
    let mut bytes = Vec::with_capacity(SEED);
    while bytes.len() < SEED {
        bytes.extend_from_slice(&rand::random::<[u8; 32]>());
    }
    BASE64_STANDARD.encode(bytes)
}
