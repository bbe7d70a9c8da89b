//! Calls into libvirt's C library that the `virt` crate does not wrap. The only module with
//! `unsafe`.
//!
//! Every function takes and returns safe types: a borrowed `Connect`, `Domain` or `NodeDevice`
//! keeps its object alive during the call. Nothing here makes a decision.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_int, c_void};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;

use uuid::Uuid;
use virt::connect::Connect;
use virt::domain::Domain;
use virt::error::{Error, clear_error_callback};
use virt::nodedev::NodeDevice;

use crate::job::JobStats;

/// A change of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event {
    /// The domain's UUID.
    pub domain: Uuid,
}

type Sink = Box<dyn Fn(Event) + Send + Sync>;

/// Initializes the library once per process: silences its standard error and starts its event loop,
/// which also answers keep-alive probes.
pub(crate) fn prepare() -> Result<(), Error> {
    static READY: OnceLock<Result<(), Error>> = OnceLock::new();
    READY
        .get_or_init(|| {
            clear_error_callback();
            virt::event::event_register_default_impl()?;
            let turn = || {
                loop {
                    if let Err(error) = virt::event::event_run_default_impl() {
                        tracing::warn!(%error, "libvirt event loop error");
                        std::thread::sleep(std::time::Duration::from_millis(100));
                    }
                }
            };
            let named = std::thread::Builder::new().name("libvirt-events".into());
            if let Err(error) = named.spawn(turn) {
                tracing::error!(%error, "could not start the thread for libvirt's events; guests are polled instead");
            }
            Ok(())
        })
        .clone()
}

/// Reports every lifecycle change and every removed device of any domain, until the connection
/// closes.
pub(crate) fn subscribe(
    connect: &Connect,
    sink: impl Fn(Event) + Send + Sync + Clone + 'static,
) -> Result<(), Error> {
    // SAFETY: the event id determines the callback's type; libvirt's C macro makes the same cast.
    // Each id is registered with a function of its exact signature.
    let lifecycle = unsafe {
        std::mem::transmute::<
            unsafe extern "C" fn(
                virt_sys::virConnectPtr,
                virt_sys::virDomainPtr,
                c_int,
                c_int,
                *mut c_void,
            ) -> c_int,
            unsafe extern "C" fn(virt_sys::virConnectPtr, virt_sys::virDomainPtr, *mut c_void),
        >(on_lifecycle)
    };
    register(connect, virt_sys::VIR_DOMAIN_EVENT_ID_LIFECYCLE, lifecycle, Box::new(sink.clone()))?;
    // SAFETY: as above.
    let removed = unsafe {
        std::mem::transmute::<
            unsafe extern "C" fn(
                virt_sys::virConnectPtr,
                virt_sys::virDomainPtr,
                *const std::ffi::c_char,
                *mut c_void,
            ),
            unsafe extern "C" fn(virt_sys::virConnectPtr, virt_sys::virDomainPtr, *mut c_void),
        >(on_device_removed)
    };
    register(connect, virt_sys::VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED, removed, Box::new(sink))
}

fn register(
    connect: &Connect,
    event: virt_sys::virDomainEventID,
    callback: unsafe extern "C" fn(virt_sys::virConnectPtr, virt_sys::virDomainPtr, *mut c_void),
    sink: Sink,
) -> Result<(), Error> {
    let opaque = Box::into_raw(Box::new(sink)).cast::<c_void>();
    // SAFETY: the connection lives while it is borrowed. libvirt owns the `Box<Sink>` behind
    // `opaque` from here on and passes it to `free` exactly once. A null domain means all domains.
    let id = unsafe {
        virt_sys::virConnectDomainEventRegisterAny(
            connect.as_ptr(),
            std::ptr::null_mut(),
            event as c_int,
            Some(callback),
            opaque,
            Some(free),
        )
    };
    if id < 0 {
        let error = Error::last_error();
        // SAFETY: libvirt does not free the pointer of a failed registration.
        unsafe { free(opaque) };
        return Err(error);
    }
    Ok(())
}

/// # Safety
///
/// `opaque` comes from [`register`] and is not used again.
unsafe extern "C" fn free(opaque: *mut c_void) {
    // SAFETY: guaranteed by the caller.
    drop(unsafe { Box::from_raw(opaque.cast::<Sink>()) });
}

/// # Safety
///
/// libvirt calls it with a domain that lives during the call and the `opaque` of [`register`].
unsafe extern "C" fn on_lifecycle(
    _: virt_sys::virConnectPtr,
    domain: virt_sys::virDomainPtr,
    _: c_int,
    _: c_int,
    opaque: *mut c_void,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { deliver(domain, opaque) };
    0
}

/// # Safety
///
/// See [`on_lifecycle`].
unsafe extern "C" fn on_device_removed(
    _: virt_sys::virConnectPtr,
    domain: virt_sys::virDomainPtr,
    _: *const std::ffi::c_char,
    opaque: *mut c_void,
) {
    // SAFETY: guaranteed by the caller.
    unsafe { deliver(domain, opaque) };
}

/// # Safety
///
/// `domain` lives during the call; `opaque` is a `Box<Sink>` that has not been freed.
unsafe fn deliver(domain: virt_sys::virDomainPtr, opaque: *mut c_void) {
    let mut raw = [0u8; 16];
    // SAFETY: libvirt writes 16 bytes to the given buffer.
    if unsafe { virt_sys::virDomainGetUUID(domain, raw.as_mut_ptr()) } < 0 {
        return;
    }
    // SAFETY: guaranteed by the caller; sinks are `Sync` and only read.
    let sink = unsafe { &*opaque.cast::<Sink>() };
    // A panic must not unwind through C.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        sink(Event { domain: Uuid::from_bytes(raw) });
    }));
}

/// CPU time of each vCPU of a running domain in nanoseconds, for at most `count` vCPUs.
pub(crate) fn vcpu_times(domain: &Domain, count: u32) -> Result<Vec<u64>, Error> {
    let one = virt_sys::virVcpuInfo { number: 0, state: 0, cpuTime: 0, cpu: 0 };
    let mut found = vec![one; usize::try_from(count).unwrap_or_default()];
    let room = c_int::try_from(found.len()).unwrap_or(c_int::MAX);
    // SAFETY: the domain lives while it is borrowed. libvirt writes at most `room` entries to a
    // buffer of that size, and no CPU maps, as it gets no buffer for them.
    let filled = unsafe {
        virt_sys::virDomainGetVcpus(
            domain.as_ptr(),
            found.as_mut_ptr(),
            room,
            std::ptr::null_mut(),
            0,
        )
    };
    check(filled)?;
    found.truncate(usize::try_from(filled).unwrap_or_default());
    Ok(found.iter().map(|info| info.cpuTime).collect())
}

/// A domain's current job, or the last one with `VIR_DOMAIN_JOB_STATS_COMPLETED`. (`virt`'s own
/// wrapper builds a `Vec` from libvirt's memory, even from a null pointer.)
pub(crate) fn job(domain: &Domain, flags: u32) -> Result<JobStats, Error> {
    let (mut kind, mut count): (c_int, c_int) = (0, 0);
    let mut values: virt_sys::virTypedParameterPtr = std::ptr::null_mut();
    // SAFETY: the domain lives while it is borrowed. libvirt writes to three locals and returns
    // `count` values, or a null pointer.
    check(unsafe {
        virt_sys::virDomainGetJobStats(domain.as_ptr(), &mut kind, &mut values, &mut count, flags)
    })?;
    let number = |name: &CStr| {
        let mut value = 0;
        // SAFETY: the values live until they are freed below; the name is a C string.
        let found =
            unsafe { virt_sys::virTypedParamsGetULLong(values, count, name.as_ptr(), &mut value) };
        if found == 1 { value } else { 0 }
    };
    let integer = |name: &CStr| {
        let mut value = 0;
        // SAFETY: as above.
        let found =
            unsafe { virt_sys::virTypedParamsGetInt(values, count, name.as_ptr(), &mut value) };
        (found == 1).then_some(value)
    };
    let boolean = |name: &CStr| {
        let mut value = 0;
        // SAFETY: as above.
        let found =
            unsafe { virt_sys::virTypedParamsGetBoolean(values, count, name.as_ptr(), &mut value) };
        (found == 1).then_some(value == 1)
    };
    let string = |name: &CStr| {
        let mut value = std::ptr::null();
        // SAFETY: as above; the text is copied before the values are freed.
        unsafe {
            let found = virt_sys::virTypedParamsGetString(values, count, name.as_ptr(), &mut value);
            let is_text = found == 1 && !value.is_null();
            is_text.then(|| CStr::from_ptr(value).to_string_lossy().into_owned())
        }
    };
    let job = JobStats {
        kind: kind as u32,
        operation: integer(virt_sys::VIR_DOMAIN_JOB_OPERATION).unwrap_or_default() as u32,
        success: boolean(virt_sys::VIR_DOMAIN_JOB_SUCCESS),
        message: string(virt_sys::VIR_DOMAIN_JOB_ERRMSG),
        memory_total: number(virt_sys::VIR_DOMAIN_JOB_MEMORY_TOTAL),
        memory_processed: number(virt_sys::VIR_DOMAIN_JOB_MEMORY_PROCESSED),
        memory_remaining: number(virt_sys::VIR_DOMAIN_JOB_MEMORY_REMAINING),
        disk_total: number(virt_sys::VIR_DOMAIN_JOB_DISK_TOTAL),
        disk_processed: number(virt_sys::VIR_DOMAIN_JOB_DISK_PROCESSED),
        disk_remaining: number(virt_sys::VIR_DOMAIN_JOB_DISK_REMAINING),
        memory_bps: number(virt_sys::VIR_DOMAIN_JOB_MEMORY_BPS),
        vfio_transferred: number(c"vfio_data_transferred"),
    };
    // SAFETY: libvirt allocated the values for us, and nothing points into them any more.
    unsafe { virt_sys::virTypedParamsFree(values, count) };
    Ok(job)
}

/// Aborts a domain's current job.
pub(crate) fn abort_job(domain: &Domain) -> Result<(), Error> {
    // SAFETY: the domain lives while it is borrowed.
    check(unsafe { virt_sys::virDomainAbortJob(domain.as_ptr()) })
}

/// Switches an outgoing live migration to post-copy.
pub(crate) fn start_post_copy(domain: &Domain) -> Result<(), Error> {
    // SAFETY: the domain lives while it is borrowed.
    check(unsafe { virt_sys::virDomainMigrateStartPostCopy(domain.as_ptr(), 0) })
}

/// Starts a backup job, which copies disks of a running guest as of now.
pub(crate) fn begin_backup(domain: &Domain, xml: &str) -> Result<(), Error> {
    let xml = c_string(xml);
    // SAFETY: domain and text live while they are borrowed; no checkpoint is requested.
    check(unsafe {
        virt_sys::virDomainBackupBegin(domain.as_ptr(), xml.as_ptr(), std::ptr::null(), 0)
    })
}

/// Flushes and freezes all file systems of a running guest through its agent. Returns the number of file systems that
/// were not frozen before.
pub(crate) fn freeze(domain: &Domain) -> Result<i32, Error> {
    // SAFETY: the domain lives while it is borrowed; without mount points all file systems are meant.
    let frozen =
        unsafe { virt_sys::virDomainFSFreeze(domain.as_ptr(), std::ptr::null_mut(), 0, 0) };
    check(frozen)?;
    Ok(frozen)
}

/// Lets a guest write to its frozen file systems again.
pub(crate) fn thaw(domain: &Domain) -> Result<(), Error> {
    // SAFETY: the domain lives while it is borrowed; without mount points all file systems are meant.
    check(unsafe { virt_sys::virDomainFSThaw(domain.as_ptr(), std::ptr::null_mut(), 0, 0) })
}

/// A socket to the first display of a running domain, which need not listen anywhere.
pub(crate) fn open_graphics(domain: &Domain) -> Result<UnixStream, Error> {
    // SAFETY: the domain lives while it is borrowed. The result is negative or a new descriptor
    // without another owner.
    unsafe {
        let socket = virt_sys::virDomainOpenGraphicsFD(domain.as_ptr(), 0, 0);
        check(socket)?;
        Ok(UnixStream::from(OwnedFd::from_raw_fd(socket)))
    }
}

/// Injects an NMI.
pub(crate) fn inject_nmi(domain: &Domain) -> Result<(), Error> {
    // SAFETY: the domain lives while it is borrowed.
    check(unsafe { virt_sys::virDomainInjectNMI(domain.as_ptr(), 0) })
}

/// Defines a persistent node device without starting it.
pub(crate) fn define_node_device(connect: &Connect, xml: &str) -> Result<NodeDevice, Error> {
    let xml = c_string(xml);
    // SAFETY: connection and text live while they are borrowed. The result is null or a device; the
    // `NodeDevice` takes over its reference.
    unsafe {
        let device = virt_sys::virNodeDeviceDefineXML(connect.as_ptr(), xml.as_ptr(), 0);
        if device.is_null() { Err(Error::last_error()) } else { Ok(NodeDevice::from_ptr(device)) }
    }
}

/// Starts a defined node device.
pub(crate) fn start_node_device(device: &NodeDevice) -> Result<(), Error> {
    // SAFETY: the device lives while it is borrowed.
    check(unsafe { virt_sys::virNodeDeviceCreate(device.as_ptr(), 0) })
}

/// Makes libvirt start a node device at boot.
pub(crate) fn autostart_node_device(device: &NodeDevice) -> Result<(), Error> {
    // SAFETY: the device lives while it is borrowed.
    check(unsafe { virt_sys::virNodeDeviceSetAutostart(device.as_ptr(), 1) })
}

/// True if a node device is active.
pub(crate) fn is_node_device_active(device: &NodeDevice) -> Result<bool, Error> {
    // SAFETY: the device lives while it is borrowed.
    check_bool(unsafe { virt_sys::virNodeDeviceIsActive(device.as_ptr()) })
}

/// True if a node device is persistent.
pub(crate) fn is_node_device_persistent(device: &NodeDevice) -> Result<bool, Error> {
    // SAFETY: the device lives while it is borrowed.
    check_bool(unsafe { virt_sys::virNodeDeviceIsPersistent(device.as_ptr()) })
}

/// Undefines a node device.
pub(crate) fn undefine_node_device(device: &NodeDevice) -> Result<(), Error> {
    // SAFETY: the device lives while it is borrowed.
    check(unsafe { virt_sys::virNodeDeviceUndefine(device.as_ptr(), 0) })
}

/// Our XML contains no NUL byte; the text is cut at one.
fn c_string(xml: &str) -> CString {
    CString::new(xml.split('\0').next().unwrap_or_default()).unwrap_or_default()
}

fn check(result: c_int) -> Result<(), Error> {
    if result < 0 { Err(Error::last_error()) } else { Ok(()) }
}

fn check_bool(result: c_int) -> Result<bool, Error> {
    check(result).map(|()| result == 1)
}
