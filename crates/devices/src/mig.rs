//! The GPU instances of cards in MIG mode, as the driver shows and changes them.
//!
//! It never decides which instance a guest gets: the controller chooses profile and place. Creating an instance that
//! exists and destroying one that is gone succeed, because the caller may repeat a step after a crash.

use std::sync::Arc;

use kilonova_node_api::{GpuInstance, MigPlacement};

use crate::{Error, MdevOptions, NvidiaSmi};

/// A card in MIG mode.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MigCard {
    /// Its address.
    pub address: String,
    /// The number of memory slices.
    pub slices: u8,
    /// Its profiles.
    pub profiles: Vec<InstanceProfile>,
    /// The vGPU types that need a GPU instance.
    pub types: Vec<InstanceType>,
    /// The existing instances.
    pub instances: Vec<GpuInstance>,
    /// Why the driver does not report the rest, or even whether the card is in MIG mode.
    pub unreadable: Option<String>,
}

impl MigCard {
    /// A card whose other data is unknown.
    pub fn unreadable(address: &str, why: String) -> Self {
        Self { address: address.to_owned(), unreadable: Some(why), ..Self::default() }
    }
}

/// A profile of GPU instances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceProfile {
    /// `3g.20gb`.
    pub name: String,
    /// The maximum number of instances on the empty card.
    pub most: u8,
    /// The places on the empty card.
    pub placements: Vec<MigPlacement>,
}

/// A vGPU type that needs a GPU instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceType {
    /// `nvidia-478`.
    pub id: String,
    /// `NVIDIA A100-3-20C`.
    pub name: String,
    /// The profile of the instance.
    pub profile: String,
}

/// A driver that manages GPU instances.
pub trait MigDriver: Send + Sync {
    /// The cards in MIG mode, and those that cannot be read.
    ///
    /// # Errors
    /// If the driver does not list the cards.
    fn cards(&self) -> Result<Vec<MigCard>, Error>;

    /// Creates an instance, unless it exists.
    ///
    /// # Errors
    /// The driver's reason.
    fn create(&self, instance: &GpuInstance) -> Result<(), Error>;

    /// Destroys an instance, if it exists.
    ///
    /// # Errors
    /// The driver's reason.
    fn destroy(&self, instance: &GpuInstance) -> Result<(), Error>;
}

/// A host without cards in MIG mode.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoMig;

impl MigDriver for NoMig {
    fn cards(&self) -> Result<Vec<MigCard>, Error> {
        Ok(Vec::new())
    }

    fn create(&self, instance: &GpuInstance) -> Result<(), Error> {
        Err(refused(instance, "this host manages no GPU instances"))
    }

    fn destroy(&self, _: &GpuInstance) -> Result<(), Error> {
        Ok(())
    }
}

/// The driver of a real host with these options.
pub fn mig_driver(options: &MdevOptions) -> Arc<dyn MigDriver> {
    if options.mig_instances { Arc::new(NvidiaSmi::default()) } else { Arc::new(NoMig) }
}

/// The error of an instance that cannot be created or destroyed.
pub fn refused(instance: &GpuInstance, reason: impl ToString) -> Error {
    Error::Instance {
        card: instance.card.clone(),
        profile: instance.profile.clone(),
        start: instance.place.start,
        reason: reason.to_string(),
    }
}
