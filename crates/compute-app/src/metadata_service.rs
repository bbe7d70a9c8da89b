//! The metadata service: answers guests' requests about themselves from memory.
//!
//! A guest sends 20 to 40 requests within the few seconds of its boot. The first one reads the server's rows and builds
//! a document, from which the others are answered. The document is rebuilt when the desired state of any server on the
//! host changes, or after the operator's expiry, whichever comes first. Memory is bounded. While the database is
//! unavailable, the last document is used.
//!
//! This module must not identify the requester: its caller has already done so.

mod cache;

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use kilonova_compute_db::guest_metadata as rows;
use kilonova_compute_db::servers::{self, instance_name};
use kilonova_compute_db::volumes::{self, BlockDevice, Phase};
use kilonova_guest_metadata::{
    Answer, Document, Images, TaggedDisk, Vendordata, VolumeDisk, hostname,
};
use kilonova_ids::{HostName, ImageId, ServerId};
use kilonova_node_api::Boot;
use kilonova_store::{Severity, Tx};
use kilonova_wire::{Refusal, time};

use crate::boot::{GuestSource, machine};
use crate::ports::{self, Networks};
use crate::{Compute, Error, user_data};
use cache::{Cache, Cached};

/// Number of random bytes in an answer with a seed.
const SEED: usize = 512;
/// The time for which a document is used even if the desired state of servers on its host changes, so that hundreds of
/// booting guests on a host do not cause a read for each request.
const YOUNG: Duration = Duration::from_secs(1);

/// The operator's settings for the service.
#[derive(Debug, Clone, PartialEq)]
pub struct MetadataOptions {
    /// `[api] metadata_cache_expiration`: the lifetime of a document; with 0, it serves a single request.
    pub expiration: Duration,
    /// `[api] dhcp_domain`: the domain of host names that have none.
    pub dhcp_domain: String,
    /// The operator's data for every guest.
    pub vendordata: Vendordata,
}

impl Default for MetadataOptions {
    fn default() -> Self {
        Self {
            expiration: Duration::from_secs(15),
            dhcp_domain: "novalocal".into(),
            vendordata: Vendordata::default(),
        }
    }
}

/// The metadata service; cheap to clone.
#[derive(Clone)]
pub struct MetadataService {
    compute: Compute,
    options: Arc<MetadataOptions>,
    cache: Arc<Cache>,
}

/// The result of a guest's attempt to set its password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PasswordSet {
    /// It is stored.
    Stored,
    /// The guest has already set one.
    Exists,
    /// There is no such server.
    NoServer,
}

impl MetadataService {
    /// A metadata service for the servers of `compute`.
    pub fn new(compute: Compute, options: MetadataOptions) -> Self {
        Self { compute, options: Arc::new(options), cache: Arc::default() }
    }

    /// Answers a request for a path from a guest of the project; `None` if the project has no such server or the path
    /// does not exist. `address` is the guest's address, as its proxy saw it.
    ///
    /// # Errors
    /// If the database is unavailable and the server's document is not in memory, or if a vendordata service fails
    /// fatally.
    pub async fn lookup(
        &self,
        server: ServerId,
        project: &str,
        path: &str,
        address: Option<&str>,
    ) -> Result<Option<Answer>, Refusal> {
        let Some(mut document) = self.document(server).await? else { return Ok(None) };
        if document.guest.project != project {
            tracing::warn!(
                %server,
                "a proxy requested the metadata of this server with the project of another one"
            );
            return Ok(None);
        }
        if path.contains("vendor_data2") && self.compute.vendordata.is_some() {
            match self.with_vendordata(server, document).await? {
                Some(complete) => document = complete,
                None => return Ok(None),
            }
        }
        let seed = if path.contains("meta_data") { seed() } else { String::new() };
        let today = time::now().strftime("%Y-%m-%d").to_string();
        Ok(document.lookup(path, &seed, &today, address))
    }

    /// The password that the guest has set, empty if it has set none; `None` if there is no such server.
    ///
    /// # Errors
    /// Store errors only.
    pub async fn password(&self, server: ServerId) -> Result<Option<String>, Refusal> {
        Ok(self.compute.store.read(move |tx| rows::password(tx, server)).await?)
    }

    /// Stores the guest's password, once.
    ///
    /// # Errors
    /// Store errors only.
    pub async fn set_password(
        &self,
        server: ServerId,
        password: String,
    ) -> Result<PasswordSet, Refusal> {
        let set = move |tx: &mut Tx<'_>| {
            if rows::password(tx, server)?.is_none() {
                return Ok(PasswordSet::NoServer);
            }
            let stored = rows::set_password(tx, server, &password)?;
            Ok::<_, Error>(if stored { PasswordSet::Stored } else { PasswordSet::Exists })
        };
        Ok(self.compute.store.write(set).await?)
    }

    /// The server's document; `None` if there is no such server.
    async fn document(&self, server: ServerId) -> Result<Option<Arc<Document>>, Refusal> {
        let known = self.cache.get(server);
        if let Some(known) = &known
            && self.is_fresh(known)
        {
            return Ok(Some(Arc::clone(&known.document)));
        }
        match self.read(server).await {
            Ok(Some(read)) => {
                let document = Arc::clone(&read.document);
                self.cache.put(server, read);
                Ok(Some(document))
            }
            Ok(None) => {
                self.cache.forget(server);
                Ok(None)
            }
            Err(Error::Store(error)) if error.severity() == Severity::Temporary => match known {
                Some(known) => {
                    tracing::warn!(%server, %error, "the database is unavailable; answering from \
                        an old document");
                    Ok(Some(known.document))
                }
                None => Err(Error::Store(error).into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// The document with the answers of the operator's services, which are called once for each
    /// document; `None` if the server no longer exists.
    async fn with_vendordata(
        &self,
        server: ServerId,
        document: Arc<Document>,
    ) -> Result<Option<Arc<Document>>, Refusal> {
        let Some(services) = &self.compute.vendordata else { return Ok(Some(document)) };
        let known = self.cache.get(server);
        if let Some(known) = known.as_ref().filter(|known| known.has_vendordata)
            && self.is_fresh(known)
        {
            return Ok(Some(Arc::clone(&known.document)));
        }
        let row = self.compute.store.read(move |tx| servers::find(tx, server)).await;
        let Some(row) = row.map_err(Error::from)? else { return Ok(None) };
        let mut complete = Document::clone(&document);
        complete.vendordata.dynamic = services.ask(&row).await?;
        let complete = Arc::new(complete);
        // Keeps the answers only if their document is still the one in memory.
        if let Some(known) = known.filter(|known| Arc::ptr_eq(&known.document, &document)) {
            let document = Arc::clone(&complete);
            self.cache.put(server, Cached { document, has_vendordata: true, ..known });
        }
        Ok(Some(complete))
    }

    /// True if the document may still be used: it has not expired, and it is very young or no newer state of its host
    /// is known to this process.
    fn is_fresh(&self, cached: &Cached) -> bool {
        let age = cached.read_at.elapsed();
        age < self.options.expiration
            && (age < YOUNG || cached.generation == self.generation(cached.host.as_ref()))
    }

    /// The newest generation of a host's documents.
    fn generation(&self, host: Option<&HostName>) -> Option<i64> {
        let host = self.compute.fleet.by_name(host?)?;
        let newest = *host.newest().borrow();
        Some(newest.generation)
    }

    /// Builds the document from the server's rows.
    async fn read(&self, server: ServerId) -> Result<Option<Cached>, Error> {
        let read_at = Instant::now();
        let networks = Arc::clone(&self.compute.networks);
        let has_volumes = self.compute.volumes.is_some();
        let read = move |tx: &mut Tx<'_>| Facts::read(tx, &*networks, has_volumes, server);
        let facts = self.compute.store.read(read).await?;
        let Some(mut facts) = facts else { return Ok(None) };
        if facts.numbers.iter().any(|(image, number)| image.is_some() && number.is_none()) {
            let images = facts.numbers.map(|(image, _)| image);
            let give = move |tx: &mut Tx<'_>| {
                for image in images.into_iter().flatten() {
                    rows::number_image(tx, image)?;
                }
                numbers(tx, images)
            };
            facts.numbers = self.compute.store.write(give).await?;
        }
        let host = facts.server.host.clone();
        let generation = self.generation(host.as_ref());
        let document = Arc::new(self.make(facts)?);
        Ok(Some(Cached { document, host, generation, read_at, has_vendordata: false }))
    }

    fn make(&self, facts: Facts) -> Result<Document, Error> {
        let Facts { server, interfaces, disks, volumes, groups, numbers } = facts;
        let zone = self.compute.zone_of(server.host.as_ref());
        let guest = GuestSource::of(&server, &zone).guest_metadata().without_files();
        let spec = &server.spec;
        let boot = Boot {
            image: spec.image,
            root_gb: spec.flavor.disk,
            ephemeral_gb: spec.ephemeral_gb(),
            swap_mb: spec.swap_mb(),
            rebuilt: None,
        };
        let user_data = spec.user_data.as_deref().map(user_data::decode);
        let user_data = user_data.transpose().map_err(|error| {
            let cause = format!("the user data of server {} is not base64: {error}", server.id);
            Error::from(Refusal::internal(cause))
        })?;
        let name = |kind: &str, (_, number): (_, Option<i64>)| {
            number.map(|number| format!("{kind}-{number:08x}"))
        };
        let [image, kernel, ramdisk] = numbers;
        Ok(Document {
            server: server.id,
            instance_id: instance_name(server.seq).replacen("instance-", "i-", 1),
            name: server.name.clone(),
            hostname: hostname(&guest.hostname, &self.options.dhcp_domain),
            user_data,
            interfaces,
            disks,
            images: Images {
                machine: name("ami", image),
                kernel: name("aki", kernel),
                ramdisk: name("ari", ramdisk),
            },
            security_groups: groups,
            block_devices: Document::block_devices(
                &boot,
                &machine::of(spec, &spec.flavor),
                &volumes,
            ),
            vendordata: self.options.vendordata.clone(),
            guest,
        })
    }
}

/// The image, kernel and RAM disk of a server with their EC2 numbers.
type Numbers = [(Option<ImageId>, Option<i64>); 3];

/// The data that a server's document is built from.
struct Facts {
    server: servers::Server,
    interfaces: Vec<kilonova_node_api::Interface>,
    disks: Vec<TaggedDisk>,
    volumes: Vec<VolumeDisk>,
    groups: Vec<String>,
    numbers: Numbers,
}

impl Facts {
    fn read(
        tx: &mut Tx<'_>,
        networks: &dyn Networks,
        has_volumes: bool,
        id: ServerId,
    ) -> Result<Option<Self>, Error> {
        let Some(server) = servers::find(tx, id)? else { return Ok(None) };
        let bound = if server.spec.networked { networks.ports(tx, &[id])? } else { Vec::new() };
        let groups = ports::group_names(tx, networks, id, &bound)?;
        let interfaces = match &server.host {
            Some(host) if !bound.is_empty() => ports::interfaces_of(tx, bound, id, host)?,
            _ => Vec::new(),
        };
        let mut devices = if has_volumes { volumes::of_server(tx, id)? } else { Vec::new() };
        devices.retain(is_in_guest);
        let volumes = devices.iter().map(|device| VolumeDisk {
            device: device.device.clone(),
            is_root: device.boot_index == Some(0),
        });
        let volumes = volumes.collect();
        let disks = devices.into_iter().filter_map(tagged_disk).collect();
        let machine = machine::of(&server.spec, &server.spec.flavor);
        let images = [server.spec.image, machine.kernel, machine.ramdisk];
        let own = server.spec.image_numbers;
        // A server that an earlier version created has no numbers in its row.
        let numbers = if own.is_empty() {
            numbers(tx, images)?
        } else {
            let [image, kernel, ramdisk] = images;
            [(image, own.machine), (kernel, own.kernel), (ramdisk, own.ramdisk)]
        };
        Ok(Some(Self { server, interfaces, disks, volumes, groups, numbers }))
    }
}

/// True if the guest has the volume or is about to get it. A guest may ask during its boot, before its
/// volumes are recorded as attached.
fn is_in_guest(device: &BlockDevice) -> bool {
    match device.phase {
        Phase::Attaching
        | Phase::Attached
        | Phase::BeginDetaching
        | Phase::RollDetaching
        | Phase::Reimaging => true,
        Phase::Requested | Phase::Detaching | Phase::Failed => false,
    }
}

/// The disk of a volume with a tag (Nova's `_build_device_metadata`).
fn tagged_disk(device: BlockDevice) -> Option<TaggedDisk> {
    Some(TaggedDisk {
        device: device.device,
        bus: device.bus,
        serial: device.volume?.to_string(),
        tag: device.tag?,
    })
}

fn numbers(tx: &mut Tx<'_>, images: [Option<ImageId>; 3]) -> Result<Numbers, Error> {
    let mut numbers = images.map(|image| (image, None));
    for (image, number) in &mut numbers {
        if let Some(image) = image {
            *number = rows::image_number(tx, *image)?;
        }
    }
    Ok(numbers)
}

/// Fresh random bytes for a guest, in base64.
fn seed() -> String {
    let mut bytes = Vec::with_capacity(SEED);
    while bytes.len() < SEED {
        bytes.extend_from_slice(&rand::random::<[u8; 32]>());
    }
    BASE64_STANDARD.encode(bytes)
}
