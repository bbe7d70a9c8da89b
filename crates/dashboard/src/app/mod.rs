//! The parts of the dashboard that render no pages: sessions, calls to the services, and changes while a page is open.

pub(crate) mod actions;
pub(crate) mod cloud;
pub(crate) mod edit;
pub(crate) mod floor;
pub(crate) mod live;
pub(crate) mod recent;
pub(crate) mod session;

use std::sync::Arc;

use axum::Router;
use kilonova_access::Enforcer;
use kilonova_compute_app::Compute;
use kilonova_seal::SealKey;
use kilonova_wire::Authenticator;
use tokio::sync::watch;

use cloud::Cloud;
use live::Live;
use recent::RecentFloor;

/// The policies of the services other than compute, whose policy is in [`Parts::compute`].
#[derive(Clone)]
pub struct Policies {
    /// Of the accelerator service.
    pub accelerator: Enforcer,
    /// Of the image service.
    pub image: Enforcer,
    /// Of the network service.
    pub network: Enforcer,
}

/// The parts of a dashboard.
pub struct Parts {
    /// The services, each under a path with its name, as clients reach them.
    pub services: Router,
    /// Validates tokens, as the services do.
    pub auth: Arc<dyn Authenticator>,
    /// The compute service, with its policy, its table of actions, and the changes of servers.
    pub compute: Compute,
    /// The policies that decide which buttons a page shows to a user. The services check each request themselves.
    pub policies: Policies,
    /// Seals sessions; every controller of a cloud has the same key.
    pub key: SealKey,
}

/// The dashboard of a process; cheap to clone.
#[derive(Clone)]
pub struct Dashboard(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub cloud: Cloud,
    pub auth: Arc<dyn Authenticator>,
    pub compute: Compute,
    pub policies: Policies,
    pub key: SealKey,
    pub live: Live,
    pub recent_floor: Arc<RecentFloor>,
    /// True once the controller is stopping.
    pub ending: watch::Sender<bool>,
}

impl Dashboard {
    /// Creates a dashboard for these services.
    pub fn new(parts: Parts) -> Self {
        let Parts { services, auth, compute, policies, key } = parts;
        let live = Live::new(compute.clone());
        let ending = watch::Sender::new(false);
        let cloud = Cloud(services);
        let recent_floor = Arc::default();
        let inner = Inner { cloud, auth, compute, policies, key, live, recent_floor, ending };
        Self(Arc::new(inner))
    }

    /// Ends the streams of open pages, whose browsers then connect to another controller.
    pub fn stop(&self) {
        self.0.ending.send_replace(true);
    }
}

impl std::fmt::Debug for Dashboard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Dashboard")
    }
}
