//! A host that dies at a chosen step: from then on nothing it is asked for happens or returns.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use kilonova_devices::Sysfs;
use kilonova_hypervisor::{About, Answer, Definition, Error, Found, Hypervisor, Life, Transfer};
use kilonova_ids::ServerId;
use kilonova_node_api::{Departure, DiskFormat, Peer, Usage};
use tokio::sync::watch;

/// When the host dies: before or after its n-th step that changes something.
#[derive(Debug, Clone, Copy)]
pub struct Death {
    pub step: usize,
    pub after: bool,
}

/// Counts steps and stops the host.
pub struct Doom {
    death: Option<Death>,
    steps: AtomicUsize,
    pub log: Mutex<Vec<String>>,
    dead: watch::Sender<bool>,
    /// The guest that last changed by itself.
    changed: watch::Sender<Option<ServerId>>,
    buried: (Mutex<bool>, Condvar),
}

enum Fate {
    Live,
    DieBefore,
    DieAfter,
}

impl Doom {
    pub fn new(death: Option<Death>) -> Arc<Self> {
        Arc::new(Self {
            death,
            steps: AtomicUsize::new(0),
            log: Mutex::default(),
            dead: watch::Sender::new(false),
            changed: watch::Sender::new(None),
            buried: (Mutex::new(false), Condvar::new()),
        })
    }

    pub async fn died(&self) {
        let _ = self.dead.subscribe().wait_for(|dead| *dead).await;
    }

    /// Tells that a guest has changed by itself.
    pub fn tell(&self, server: ServerId) {
        self.changed.send_replace(Some(server));
    }

    /// Lets threads that hang in the dead kernel go.
    pub fn bury(&self) {
        *self.buried.0.lock().expect("no panic before") = true;
        self.buried.1.notify_all();
    }

    fn fate(&self, step: &str) -> Fate {
        if *self.dead.borrow() {
            return Fate::DieBefore;
        }
        self.log.lock().expect("no panic before").push(step.to_owned());
        let number = self.steps.fetch_add(1, Ordering::SeqCst);
        match self.death {
            Some(death) if death.step == number => {
                if death.after {
                    return Fate::DieAfter;
                }
                self.dead.send_replace(true);
                Fate::DieBefore
            }
            _ => Fate::Live,
        }
    }

    async fn run<T>(
        &self,
        step: &str,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        match self.fate(step) {
            Fate::Live => work.await,
            Fate::DieBefore => std::future::pending().await,
            Fate::DieAfter => {
                let _ = work.await;
                self.dead.send_replace(true);
                std::future::pending().await
            }
        }
    }

    fn hang(&self) -> io::Error {
        let mut buried = self.buried.0.lock().expect("no panic before");
        while !*buried {
            buried = self.buried.1.wait(buried).expect("no panic before");
        }
        io::ErrorKind::Interrupted.into()
    }
}

/// A kernel that refuses some writes: each entry is the end of a path, the number of matching writes
/// that are let through first, and the error of the next one.
pub struct Stubborn {
    pub refusals: Mutex<Vec<(&'static str, usize, i32)>>,
    pub inner: Arc<dyn Sysfs>,
}

impl Sysfs for Stubborn {
    fn read(&self, path: &str) -> io::Result<String> {
        self.inner.read(path)
    }
    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        self.inner.list(path)
    }
    fn write(&self, path: &str, value: &str) -> io::Result<()> {
        let mut refusals = self.refusals.lock().expect("no panic before");
        if let Some(at) = refusals.iter().position(|(end, ..)| path.ends_with(end)) {
            if refusals[at].1 == 0 {
                return Err(io::Error::from_raw_os_error(refusals.remove(at).2));
            }
            refusals[at].1 -= 1;
        }
        drop(refusals);
        self.inner.write(path, value)
    }
    fn exists(&self, path: &str) -> bool {
        self.inner.exists(path)
    }
    fn real(&self, path: &str) -> io::Result<String> {
        self.inner.real(path)
    }
}

pub struct Fragile<T: ?Sized> {
    pub doom: Arc<Doom>,
    pub inner: Arc<T>,
}

impl Hypervisor for Fragile<dyn Hypervisor> {
    fn about(&self) -> About {
        self.inner.about()
    }
    fn changed(&self) -> Answer<'_, ServerId> {
        Box::pin(async {
            loop {
                let mut changed = self.doom.changed.subscribe();
                let _ = changed.wait_for(Option::is_some).await;
                if let Some(server) = self.doom.changed.send_replace(None) {
                    return Ok(server);
                }
            }
        })
    }
    fn servers(&self) -> Answer<'_, Vec<ServerId>> {
        self.inner.servers()
    }
    fn running(&self) -> Answer<'_, Vec<ServerId>> {
        self.inner.running()
    }
    fn domain(&self, server: ServerId) -> Answer<'_, Option<Found>> {
        self.inner.domain(server)
    }
    fn prepare<'a>(&'a self, definition: &'a Definition) -> Answer<'a, ()> {
        Box::pin(self.doom.run("image", self.inner.prepare(definition)))
    }
    fn prepare_rescue<'a>(&'a self, definition: &'a Definition) -> Answer<'a, ()> {
        Box::pin(self.doom.run("rescue", self.inner.prepare_rescue(definition)))
    }
    fn pause(&self, server: ServerId) -> Answer<'_, ()> {
        Box::pin(self.doom.run("pause", self.inner.pause(server)))
    }
    fn unpause(&self, server: ServerId) -> Answer<'_, ()> {
        Box::pin(self.doom.run("unpause", self.inner.unpause(server)))
    }
    fn suspend(&self, server: ServerId) -> Answer<'_, ()> {
        Box::pin(self.doom.run("suspend", self.inner.suspend(server)))
    }
    fn resume(&self, server: ServerId) -> Answer<'_, ()> {
        Box::pin(self.doom.run("resume", self.inner.resume(server)))
    }
    fn fetch<'a>(&'a self, definition: &'a Definition, from: &'a Peer) -> Answer<'a, ()> {
        Box::pin(self.doom.run("fetch", self.inner.fetch(definition, from)))
    }
    fn receive(&self, server: ServerId) -> Answer<'_, ()> {
        Box::pin(self.doom.run("receive", self.inner.receive(server)))
    }
    fn arrive(&self, server: ServerId, life: Life) -> Answer<'_, ()> {
        Box::pin(self.doom.run("arrive", self.inner.arrive(server, life)))
    }
    fn depart<'a>(&'a self, server: ServerId, departure: &'a Departure) -> Answer<'a, Transfer> {
        Box::pin(self.doom.run("migrate", self.inner.depart(server, departure)))
    }
    fn stay(&self, server: ServerId) -> Answer<'_, ()> {
        self.inner.stay(server)
    }
    fn crash_dump(&self, server: ServerId) -> Answer<'_, ()> {
        Box::pin(self.doom.run("crash_dump", self.inner.crash_dump(server)))
    }
    fn snapshot(&self, server: ServerId, file: PathBuf) -> Answer<'_, DiskFormat> {
        Box::pin(self.doom.run("snapshot", self.inner.snapshot(server, file)))
    }
    fn console(&self, server: ServerId) -> Answer<'_, String> {
        self.inner.console(server)
    }
    fn usage(&self, server: ServerId) -> Answer<'_, Usage> {
        self.inner.usage(server)
    }
    fn define<'a>(&'a self, definition: &'a Definition) -> Answer<'a, ()> {
        Box::pin(self.doom.run("define", self.inner.define(definition)))
    }
    fn start(&self, server: ServerId) -> Answer<'_, ()> {
        Box::pin(self.doom.run("start", self.inner.start(server)))
    }
    fn stop(&self, server: ServerId) -> Answer<'_, ()> {
        Box::pin(self.doom.run("stop", self.inner.stop(server)))
    }
    fn reboot(&self, server: ServerId) -> Answer<'_, ()> {
        Box::pin(self.doom.run("reboot", self.inner.reboot(server)))
    }
    fn destroy(&self, server: ServerId) -> Answer<'_, ()> {
        Box::pin(self.doom.run("destroy", self.inner.destroy(server)))
    }
    fn undefine(&self, server: ServerId) -> Answer<'_, ()> {
        Box::pin(self.doom.run("undefine", self.inner.undefine(server)))
    }
}

impl Sysfs for Fragile<dyn Sysfs> {
    fn read(&self, path: &str) -> io::Result<String> {
        self.inner.read(path)
    }
    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        self.inner.list(path)
    }
    fn write(&self, path: &str, value: &str) -> io::Result<()> {
        match self.doom.fate(if path.ends_with("/create") { "create_mdev" } else { "remove_mdev" })
        {
            Fate::Live => self.inner.write(path, value),
            Fate::DieBefore => Err(self.doom.hang()),
            Fate::DieAfter => {
                let _ = self.inner.write(path, value);
                self.doom.dead.send_replace(true);
                Err(self.doom.hang())
            }
        }
    }
    fn exists(&self, path: &str) -> bool {
        self.inner.exists(path)
    }
    fn real(&self, path: &str) -> io::Result<String> {
        self.inner.real(path)
    }
}
