//! The worker: changes Neutron to match the goal of a server, stores the views, and delivers the
//! documents.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kilonova_accelerator::ledger as devices;
use kilonova_compute_db::external_ports::{self, ExternalServer, NewView};
use kilonova_compute_db::{documents, port_claims};
use kilonova_ids::{HostName, NetworkId, PortId, ServerId, SubnetId};
use kilonova_neutron::{GroupFilter, PortFilter, Profile};
use kilonova_node_api::{Desired, OVS_HYBRID_PLUG};
use kilonova_store::Tx;
use kilonova_wire::time;
use tokio::task::JoinSet;

use super::journal::{self, PortRow, ServerFacts};
use super::networks::{are_plugged, group_names, prepared, present};
use super::view::{PortView, ViewContext};
use super::{CloudNeutron, OWN_TIME, failed, own, vouched};
use crate::boot::{change_claims, release_port};
use crate::ports::neutron::{
    Attached, Attachment, ChangedClaims, Failure, Providers, Wanted, Wish, attach, device_profile,
    release, unbind,
};
use crate::ports::{name_of, refresh};
use crate::{Compute, Error, flows};

/// Number of servers that this process settles concurrently.
pub(super) const AT_ONCE: usize = 16;
/// The pause before the next attempt to update a guest that is in the middle of an operation.
const LATER: SignedDuration = SignedDuration::from_secs(30);

/// Settles the servers in this process's queue until the process ends.
pub async fn run(compute: Compute) {
    let Some(cloud) = compute.neutron.clone() else { return };
    let mut running = JoinSet::new();
    loop {
        while running.len() >= AT_ONCE {
            running.join_next().await;
        }
        match cloud.queue.pop() {
            Some(server) => {
                let compute = compute.clone();
                running.spawn(async move {
                    if let Err(error) = settle(&compute, server).await {
                        tracing::warn!(%server, %error, "cannot store Neutron's ports of a \
                            server; retrying");
                    }
                });
            }
            None => tokio::select! {
                () = cloud.queue.wait() => {}
                _ = running.join_next(), if !running.is_empty() => {}
            },
        }
    }
}

/// A leased server, with all data for the calls.
#[derive(Debug, Clone)]
pub(super) struct Taken {
    pub row: ExternalServer,
    pub ports: Vec<PortRow>,
    facts: ServerFacts,
    devices: HashMap<PortId, Profile>,
    /// The providers of the resources that ports request.
    providers: Providers,
    /// The hosts of the goal whose agents are too old for hybrid plugs.
    without_hybrid_plugs: Vec<HostName>,
}

/// The result of an attempt.
#[derive(Debug, Clone)]
enum Settled {
    /// The ports of a server that is gone are released.
    Released,
    /// The ports match the goal. Views of deleted ports are missing.
    Views { views: Vec<NewView>, claims: Vec<ChangedClaims> },
}

/// An attempt to settle a server.
#[derive(Debug, Clone)]
pub enum Attempt {
    /// Nothing is due, or another worker has leased the server.
    None,
    /// It succeeded, perhaps for an outdated goal.
    Made,
    /// It failed.
    Failed(Arc<failed::Failed>),
}

/// Makes one attempt to match Neutron to a server's goal, if the server is due and no other worker has leased it.
///
/// # Errors
/// Store errors only.
pub async fn settle(compute: &Compute, server: ServerId) -> Result<Attempt, Error> {
    let Some(cloud) = compute.neutron.clone() else { return Ok(Attempt::None) };
    let longest = cloud.options.longest_attempt;
    // No other worker may lease the server while calls may be in progress.
    let lease = longest.saturating_add(longest / 10);
    let taker = compute.clone();
    let taken = compute.store.write(move |tx| take(tx, &taker, server, lease)).await?;
    let Some(taken) = taken else { return Ok(Attempt::None) };
    let mut made = BTreeMap::new();
    let result =
        match tokio::time::timeout(longest.unsigned_abs(), cloud.work(&taken, &mut made)).await {
            Ok(Ok(settled)) => Ok(settled),
            Ok(Err(failure)) => Err(Arc::new(failed::Failed::of(failure))),
            Err(_) => Err(Arc::new(failed::Failed::slow())),
        };
    let attempt = match &result {
        Ok(_) => Attempt::Made,
        Err(failed) => Attempt::Failed(Arc::clone(failed)),
    };
    let (taken, made) = (Arc::new(taken), Arc::new(made));
    let own = compute.explaining();
    let compute_ = own.clone();
    let again = own
        .write(move |tx| finish(tx, &compute_, &cloud, &taken, &made, &result, time::now()))
        .await?;
    if let Some(pause) = again {
        let queue = compute.neutron.as_ref().map(|cloud| Arc::clone(&cloud.queue));
        let pause = Duration::try_from(pause).unwrap_or_default();
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            queue.inspect(|queue| queue.push(server));
        });
    }
    Ok(attempt)
}

fn take(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    lease: SignedDuration,
) -> Result<Option<Taken>, Error> {
    let now = time::now();
    let (due, until) = (time::after(now, OWN_TIME), time::after(now, lease));
    let Some(row) = external_ports::take(tx, server, &compute.controller, now, due, until)? else {
        return Ok(None);
    };
    let ports = journal::ports(tx, server)?;
    let facts = journal::facts(&row)?;
    let mut profiles = HashMap::new();
    if let Some(host) = row.host.as_ref().filter(|_| ports.iter().any(has_device)) {
        for device in devices::of_ports(tx, server, host)? {
            let slot = name_of(&device.attachment);
            profiles.insert(device.port, device_profile(&device.arq.to_string(), &slot));
        }
    }
    let mut providers = Providers::default();
    // A policy may now guarantee resources to a supplied port that requested none when it was last read.
    if ports.iter().any(|port| port.is_supplied || !port.requested().is_empty()) {
        for claim in port_claims::of_server(tx, server)? {
            providers.add(claim);
        }
    }
    let hosts = [&row.host, &row.next_host].into_iter().flatten();
    let is_old = |host: &&HostName| !compute.host_has_trait(host, OVS_HYBRID_PLUG);
    let without_hybrid_plugs = hosts.filter(is_old).cloned().collect();
    Ok(Some(Taken { row, ports, facts, devices: profiles, providers, without_hybrid_plugs }))
}

fn has_device(port: &PortRow) -> bool {
    port.device_profile.is_some()
}

impl CloudNeutron {
    /// Makes the calls. `made` receives the ports that were created for the server, keyed by the ordinals of their
    /// connections.
    async fn work(
        &self,
        taken: &Taken,
        made: &mut BTreeMap<i64, PortId>,
    ) -> Result<Settled, Failure> {
        let server = taken.row.id;
        let token = self.tokens.of(server);
        let user = vouched(token.as_ref());
        if taken.row.is_gone {
            let supplied: BTreeSet<PortId> = taken
                .ports
                .iter()
                .filter(|port| port.is_supplied)
                .filter_map(|port| port.port)
                .collect();
            release(&self.client, user, own(), server, &supplied).await?;
            return Ok(Settled::Released);
        }
        for port in taken.ports.iter().filter(|port| port.is_detaching) {
            match port.port {
                Some(id) => {
                    unbind(&self.client, user, own(), server, (id, port.is_supplied)).await?;
                }
                None => self.delete_unnamed(taken, &port.wish).await?,
            }
        }
        let staying: Vec<&PortRow> = taken.ports.iter().filter(|port| !port.is_detaching).collect();
        let wanted: Vec<Wanted> = staying.iter().map(|port| port.wanted()).collect();
        let attachment = Attachment {
            server,
            project: &taken.row.project_id,
            host: taken.row.host.as_deref(),
            next_host: taken.row.next_host.as_deref(),
            may_have_more: taken.row.may_have_more,
            zone: &taken.facts.zone,
            hostname: &taken.facts.hostname,
            wanted: &wanted,
            groups: &taken.facts.groups,
            devices: &taken.devices,
            providers: &taken.providers,
        };
        let mut places = BTreeMap::new();
        let user = user.unwrap_or(own());
        let attached = attach(&self.client, user, own(), &attachment, &mut places).await;
        made.extend(
            places
                .into_iter()
                .filter_map(|(place, port)| Some((staying.get(place)?.ordinal, port))),
        );
        let attached = attached?;
        let context = self.context(attached.iter().flatten()).await?;
        let mut views = Vec::with_capacity(attached.len());
        let mut claims = Vec::new();
        for (row, attached) in staying.iter().zip(&attached) {
            let Some(attached) = attached else { continue };
            claims.extend(attached.changed_claims.clone());
            if let Some(view) = self.view(taken, row, attached, &context)? {
                views.push(view);
            }
        }
        Ok(Settled::Views { views, claims })
    }

    /// Deletes a connection's ports whose creation was never recorded. No row names them, and the process that died may
    /// have bound them.
    async fn delete_unnamed(&self, taken: &Taken, wish: &Wish) -> Result<(), Failure> {
        let device = taken.row.id.to_string();
        let fields = ["id", "network_id", "device_owner"];
        let ports = self.client.ports(own(), PortFilter::Device(&device), &fields).await?;
        let is_named = |id: PortId| taken.ports.iter().any(|port| port.port == Some(id));
        let fits = |network: Option<NetworkId>| match wish {
            Wish::New { network: wanted, .. } => network == Some(*wanted),
            Wish::Allocated => true,
            Wish::Existing(_) => false,
        };
        for port in ports {
            let owner = &port.device_owner;
            let is_guests = owner.is_empty() || owner.starts_with("compute:");
            if is_guests && !is_named(port.id) && fits(port.network_id) {
                unbind(&self.client, None, own(), taken.row.id, (port.id, false)).await?;
            }
        }
        Ok(())
    }

    /// The data that views of ports need in addition to the ports.
    async fn context<'a>(
        &self,
        attached: impl Iterator<Item = &'a Attached> + Clone,
    ) -> Result<ViewContext, Failure> {
        let ports = attached.clone().map(|attached| &attached.port);
        let subnets: BTreeSet<SubnetId> =
            ports.clone().flat_map(|port| &port.fixed_ips).map(|fixed| fixed.subnet_id).collect();
        let subnets: Vec<SubnetId> = subnets.into_iter().collect();
        let networks: BTreeSet<NetworkId> = attached.map(|attached| attached.network.id).collect();
        let groups: BTreeSet<String> =
            ports.clone().flat_map(|port| port.security_groups.iter().cloned()).collect();
        let groups: Vec<String> = groups.into_iter().collect();
        let ids: Vec<PortId> = ports.map(|port| port.id).collect();
        let mut context = ViewContext {
            subnets: self.client.subnets(own(), &subnets).await?,
            floating: self.client.floating_ips(own(), &ids).await?,
            ..ViewContext::default()
        };
        for network in networks {
            let fields = ["id", "network_id", "fixed_ips"];
            let dhcp = self.client.ports(own(), PortFilter::Dhcp(network), &fields).await?;
            context.dhcp.extend(dhcp);
        }
        let fields = ["id", "name", "description", "tenant_id"];
        let found = self.client.security_groups(own(), GroupFilter::Ids(&groups), &fields).await?;
        context.groups = found.into_iter().map(|group| (group.id.to_string(), group)).collect();
        Ok(context)
    }

    /// The view to store for a port: the last stored one if the server has no host and no new view can be built.
    fn view(
        &self,
        taken: &Taken,
        row: &PortRow,
        attached: &Attached,
        context: &ViewContext,
    ) -> Result<Option<NewView>, Failure> {
        let bridge = &self.options.ovs_bridge;
        let of = |port| {
            let view = PortView::of(attached, port, row.tag.as_deref(), context, bridge)?;
            let is_hybrid = view.interface.hybrid_plug().is_some();
            let is_there = |old: &&HostName| is_hybrid && view.host.as_ref() == Some(*old);
            match taken.without_hybrid_plugs.iter().find(is_there) {
                Some(old) => Err(format!(
                    "Port {} needs a hybrid plug (ovs_hybrid_plug), which the agent of {old} does not support: upgrade it.",
                    attached.port.id
                )),
                None => Ok(view),
            }
        };
        let text = |view: &PortView| {
            journal::to_text(view).map_err(|error| Failure::Host(error.to_string()))
        };
        let mut view = match (of(&attached.port), &row.view, &taken.row.host) {
            (Ok(view), _, _) => view,
            (Err(_), Some(view), None) => view.clone(),
            (Err(why), _, _) => return Err(Failure::Host(why)),
        };
        // The next claim includes these resources.
        let resources = attached.port.requested().unwrap_or_default();
        let is_shown = !resources.is_empty() || !row.resources.is_empty();
        view.resources = is_shown.then_some(resources);
        let next = match &attached.next {
            Some(next) => Some(text(&of(next).map_err(Failure::Host)?)?),
            None => None,
        };
        Ok(Some(NewView {
            ordinal: row.ordinal,
            port: attached.port.id,
            view: text(&view)?,
            next_view: next,
            addresses: view.addresses(),
            is_plugged: attached.port.is_active(),
            is_down: !attached.port.admin_state_up,
        }))
    }
}

/// Stores the result of an attempt. Returns the pause before the next one, if this process makes it.
fn finish(
    tx: &mut Tx<'_>,
    compute: &Compute,
    cloud: &CloudNeutron,
    taken: &Taken,
    made: &BTreeMap<i64, PortId>,
    result: &Result<Settled, Arc<failed::Failed>>,
    now: Timestamp,
) -> Result<Option<SignedDuration>, Error> {
    let id = taken.row.id;
    let Some(row) = external_ports::find(tx, id)? else { return Ok(None) };
    if row.taken_until != taken.row.taken_until {
        return Ok(None);
    }
    if row.revision != taken.row.revision {
        // The goal has changed. The ids of the created ports are stored, so that ports that the new goal does not need
        // can be deleted.
        note_made(tx, id, made)?;
        external_ports::end_lease(tx, id, Some(now))?;
        return Ok(Some(SignedDuration::ZERO));
    }
    match result {
        Ok(Settled::Released) => {
            external_ports::forget(tx, id)?;
            flows::released(tx, compute, id, now)?;
            Ok(None)
        }
        Ok(Settled::Views { views, claims }) => {
            change_claims(tx, compute, id, claims)?;
            store_views(tx, compute, taken, views)?;
            // Inactive bindings are deleted, except that of the next host.
            external_ports::settle(tx, &taken.row, taken.row.next_host.is_some())?;
            deliver(tx, compute, taken)?;
            flows::ports_plugged(tx, compute, id, now)?;
            let mut again = row.due_at != taken.row.due_at;
            if !refresh(tx, compute, id)? {
                external_ports::refresh(tx, id, time::after(now, LATER))?;
                return Ok(Some(LATER));
            }
            again |= external_ports::find(tx, id)?.is_some_and(|row| row.due_at.is_some());
            Ok(again.then_some(SignedDuration::ZERO))
        }
        Err(failed) => {
            note_made(tx, id, made)?;
            failed.store(tx, compute, cloud, taken, now)
        }
    }
}

/// Stores the ids of the ports that an attempt created.
fn note_made(tx: &mut Tx<'_>, server: ServerId, made: &BTreeMap<i64, PortId>) -> Result<(), Error> {
    for (ordinal, port) in made {
        external_ports::set_port(tx, server, *ordinal, *port)?;
    }
    Ok(())
}

fn store_views(
    tx: &mut Tx<'_>,
    compute: &Compute,
    taken: &Taken,
    views: &[NewView],
) -> Result<(), Error> {
    let id = taken.row.id;
    for view in views {
        external_ports::set_view(tx, id, view)?;
    }
    for port in &taken.ports {
        if !views.iter().any(|view| view.ordinal == port.ordinal) {
            if !port.is_detaching {
                tracing::info!(server = %id, port = ?port.port, "a port of the server no longer exists in Neutron");
            }
            external_ports::forget_port(tx, id, port.ordinal)?;
            if let Some(gone) = port.port.filter(|_| !port.requested().is_empty()) {
                release_port(tx, compute, gone)?;
            }
        }
    }
    Ok(())
}

/// Delivers the documents that waited for this goal.
fn deliver(tx: &mut Tx<'_>, compute: &Compute, taken: &Taken) -> Result<(), Error> {
    let id = taken.row.id;
    let held = documents::held(tx, id)?;
    if held.is_empty() {
        return Ok(());
    }
    let ports = journal::ports(tx, id)?;
    let groups = group_names(&ports);
    for (host, document) in held {
        let is = |wanted: &Option<HostName>| wanted.as_ref() == Some(&host);
        let interfaces = match (is(&taken.row.host), is(&taken.row.next_host)) {
            (true, _) => present(&ports),
            (false, true) => prepared(&ports),
            (false, false) => continue,
        };
        if let Desired::Present(mut domain) = document.desired {
            domain.config.interfaces = interfaces;
            domain.config.guest.security_groups.clone_from(&groups);
            domain.starts_paused &= !are_plugged(&ports);
            documents::put(tx, compute, &host, id, &Desired::Present(domain))?;
        }
    }
    Ok(())
}
