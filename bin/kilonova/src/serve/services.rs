//! The services over one store.

use std::sync::Arc;

use kilonova_compute_app::Compute;
use kilonova_compute_app::bitstreams::ImageBitstreams;
use kilonova_compute_app::images::glance::CloudGlance;
use kilonova_compute_app::ports::external::CloudNeutron;
use kilonova_compute_app::vendordata::DynamicVendordata;
use kilonova_compute_app::volumes::Volumes;
use kilonova_identity::{CatalogEntry, Identity, TokenKeys};
use kilonova_image::Images;
use kilonova_keystone::Validator;
use kilonova_placement::World;
use kilonova_seal::Vault;
use kilonova_store::{Migration, Store};
use kilonova_wire::Authenticator;
use kilonova_wire::noauth::NoAuth;

use super::secrets;
use crate::config::{
    AuthStrategy, CinderSettings, GlanceSettings, NeutronSettings, ServiceName, Settings,
    VendordataSettings,
};
use crate::failure::Failure;
use crate::state::{Credentials, StateDir, controller_id};

/// The services of this process; `None` for those that are not configured.
pub(super) struct Services {
    pub store: Store,
    pub world: World,
    pub auth: Arc<dyn Authenticator>,
    pub identity: Option<Identity>,
    pub images: Option<Images>,
    pub compute: Option<Compute>,
    pub accelerator: kilonova_accelerator::State,
}

/// The schema of all services, including those that this process does not run, because they share
/// one ledger.
pub fn migrations() -> Vec<Migration> {
    [
        kilonova_changes::MIGRATIONS,
        kilonova_seal::MIGRATIONS,
        kilonova_identity::MIGRATIONS,
        kilonova_image::MIGRATIONS,
        kilonova_network::MIGRATIONS,
        kilonova_placement::MIGRATIONS,
        kilonova_accelerator::MIGRATIONS,
        kilonova_enroll::MIGRATIONS,
        kilonova_flow::MIGRATIONS,
        kilonova_compute_db::MIGRATIONS[0],
        kilonova_compute_db::MIGRATIONS[1],
        super::dev::MIGRATIONS,
    ]
    .into_iter()
    .flatten()
    .copied()
    .collect()
}

pub(super) async fn open(
    settings: &Settings,
    directory: &StateDir,
    vault: &Vault,
    store: Store,
    credentials: Option<&Credentials>,
) -> Result<Services, Failure> {
    let world = World::new();
    world.load(&store).await.map_err(|e| Failure::failed("cannot load the providers", e))?;
    let identity = match credentials {
        None => None,
        Some(credentials) => Some(identity(settings, directory, vault, &store, credentials).await?),
    };
    let auth: Arc<dyn Authenticator> = match (&identity, settings.auth) {
        (_, AuthStrategy::NoAuth2) => Arc::new(NoAuth),
        (Some(identity), AuthStrategy::Keystone) => Arc::new(identity.clone()),
        (None, AuthStrategy::Keystone) => Arc::new(external_keystone(settings)?),
    };
    let images = if settings.runs(ServiceName::Image) {
        let opened =
            Images::open_with(store.clone(), &directory.join("images"), settings.image.clone())
                .await;
        let opened = opened.map_err(|e| Failure::failed("cannot open the image store", e))?;
        Some(opened.with_policy(settings.policies.enforcer(ServiceName::Image)))
    } else {
        None
    };
    // Hosts report to the compute service even if its API is off, because the accelerator service
    // needs their devices.
    let compute = if settings.runs(ServiceName::Compute) || settings.runs(ServiceName::Accelerator)
    {
        let opened = Compute::open(store.clone(), world.clone()).await;
        let opened = opened.map_err(|e| Failure::failed("cannot load the hosts", e))?;
        let opened = opened
            .with_controller(&controller_id(directory)?)
            .with_options(settings.compute.clone())
            .with_policy(settings.policies.enforcer(ServiceName::Compute))
            .with_vendordata(vendordata(settings)?);
        let opened = match &settings.neutron {
            Some(neutron) => opened.with_neutron(cloud_neutron(neutron)?),
            None => opened,
        };
        let opened = match &settings.cinder {
            Some(cinder) => opened.with_cinder(cloud_cinder(cinder)?),
            None => opened,
        };
        let ended = opened.end_earlier_leases().await;
        ended.map_err(|e| Failure::failed("cannot end the leases of an earlier process", e))?;
        Some(match (&images, &settings.glance) {
            (_, Some(glance)) => opened.with_glance(cloud_glance(glance)?),
            (Some(images), None) => opened.with_images(images.clone()),
            (None, None) => {
                opened.with_image_policy(settings.policies.enforcer(ServiceName::Image))
            }
        })
    } else {
        None
    };
    let mut accelerator = kilonova_accelerator::State::new(store.clone(), world.clone())
        .with_policy(settings.policies.enforcer(ServiceName::Accelerator))
        .with_unbound_limit(settings.unbound_requests);
    if let Some(nova) = &settings.nova {
        accelerator = accelerator.telling(Arc::clone(nova) as _);
    }
    if let Some(compute) = &compute {
        accelerator = accelerator.with_nodes(Arc::new(compute.clone()));
    }
    if images.is_some() {
        accelerator = accelerator.with_bitstreams(Arc::new(ImageBitstreams));
    }
    Ok(Services { store, world, auth, identity, images, compute, accelerator })
}

/// The operator's services that provide vendor data to guests.
fn vendordata(settings: &Settings) -> Result<Option<Arc<DynamicVendordata>>, Failure> {
    let opened = settings.vendordata.as_ref().map(VendordataSettings::open).transpose();
    Ok(opened.map_err(Failure::Refused)?.map(Arc::new))
}

/// The Cinder of the cloud. Does not wait for it: it may start later.
fn cloud_cinder(settings: &CinderSettings) -> Result<Volumes, Failure> {
    if let Some(remark) = settings.remark() {
        tracing::warn!("{remark}");
    }
    let refused = |why: String| Failure::Refused(format!("[cinder] {why}"));
    let checked = settings.open().map_err(refused)?;
    tokio::spawn(async move {
        match checked.check().await {
            Ok(()) => tracing::info!("connected to the external Cinder for volumes"),
            Err(error) => {
                tracing::warn!(%error, "cannot use the external Cinder with Kilonova's own login; volumes need it")
            }
        }
    });
    settings.open().map_err(refused)
}

/// The Glance of the cloud. Does not wait for it: it may start later.
fn cloud_glance(settings: &GlanceSettings) -> Result<CloudGlance, Failure> {
    let refused = |why: String| Failure::Refused(format!("[glance] {why}"));
    let checked = settings.open().map_err(refused)?;
    tokio::spawn(async move {
        match checked.check().await {
            Ok(()) => tracing::info!("connected to the external Glance for images"),
            Err(error) => {
                tracing::warn!(%error, "cannot use the external Glance with Kilonova's own login; boots need it")
            }
        }
    });
    settings.open().map_err(refused)
}

/// The Neutron of the cloud. Does not wait for it: it may start later.
fn cloud_neutron(settings: &NeutronSettings) -> Result<CloudNeutron, Failure> {
    let refused = |why: String| Failure::Refused(format!("[neutron] {why}"));
    let checked = settings.open().map_err(refused)?;
    tokio::spawn(async move {
        match checked.check().await {
            Ok(()) => tracing::info!("connected to the external Neutron for ports"),
            Err(error) => {
                tracing::warn!(%error, "cannot use the external Neutron with Kilonova's own login; boots need it")
            }
        }
    });
    settings.open().map_err(refused)
}

/// Validates tokens of an external Keystone. Does not wait for it: it may start later.
fn external_keystone(settings: &Settings) -> Result<Validator, Failure> {
    let options = settings.keystone.clone().ok_or_else(|| {
        Failure::Refused(
            "[api] auth_strategy = keystone requires identity in [api] services, or an external Keystone \
             in [keystone_authtoken]"
                .into(),
        )
    })?;
    let validator = Validator::new(options)
        .map_err(|e| Failure::Refused(format!("[keystone_authtoken] {e}")))?;
    let checked = validator.clone();
    tokio::spawn(async move {
        match checked.check().await {
            Ok(()) => tracing::info!("logged in to Keystone"),
            Err(error) => {
                tracing::warn!(%error, "cannot log in to Keystone; requests are refused until it answers")
            }
        }
    });
    Ok(validator)
}

async fn identity(
    settings: &Settings,
    directory: &StateDir,
    vault: &Vault,
    store: &Store,
    credentials: &Credentials,
) -> Result<Identity, Failure> {
    let failed = |e: kilonova_identity::Error| Failure::failed("cannot start identity", e);
    let keys = TokenKeys::open(vault.clone(), &directory.join("keys")).await.map_err(failed)?;
    secrets::follow(keys.clone());
    let identity = Identity::open(store.clone(), keys, settings.identity.clone())
        .await
        .map_err(failed)?
        .with_policy(settings.policies.enforcer(ServiceName::Identity));
    let is_ours = identity.bootstrap(&credentials.password).await.map_err(failed)?;
    if credentials.fresh && !is_ours {
        credentials.discard(directory);
    }
    identity.set_catalog(settings.services.iter().map(|service| entry(*service)).collect());
    Ok(identity)
}

/// The catalog entry of a service: the paths of Nova, Cyborg and Keystone contain their version, the
/// others do not, as upstream's installers set them.
fn entry(service: ServiceName) -> CatalogEntry {
    let (service_type, name, path) = match service {
        ServiceName::Identity => ("identity", "keystone", "/identity/v3"),
        ServiceName::Compute => ("compute", "nova", "/compute/v2.1"),
        ServiceName::Placement => ("placement", "placement", "/placement"),
        ServiceName::Accelerator => ("accelerator", "cyborg", "/accelerator/v2"),
        ServiceName::Image => ("image", "glance", "/image"),
        ServiceName::Network => ("network", "neutron", "/network"),
    };
    CatalogEntry { service_type: service_type.into(), name: name.into(), path: path.into() }
}
