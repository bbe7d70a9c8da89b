//! What the `virt` crate has no words for, called in libvirt's C library. The only place with
//! `unsafe`.
//!
//! Every function takes and gives safe types: a reference to a `Connect`, a `Domain` or a `NodeDevice`
//! keeps its object alive for as long as a call lasts. Nothing here decides anything.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::OnceLock;

use uuid::Uuid;
use virt::connect::Connect;
use virt::domain::Domain;
use virt::error::{Error, clear_error_callback};
use virt::nodedev::NodeDevice;

use crate::job::Job;

/// Something that happened to a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event {
    /// Whose.
    pub domain: Uuid,
}

type Sink = Box<dyn Fn(Event) + Send + Sync>;

/// Readies the library, once in a process: its event loop, which answers keep-alive questions too,
/// and silence on standard error.
pub(crate) fn prepare() -> Result<(), Error> {
    static READY: OnceLock<Result<(), Error>> = OnceLock::new();
    READY
        .get_or_init(|| {
            clear_error_callback();
            virt::event::event_register_default_impl()?;
            let turn = || {
                loop {
                    if let Err(error) = virt::event::event_run_default_impl() {
                        tracing::warn!(%error, "libvirt's event loop stumbled");
                        std::thread::sleep(std::time::Duration::from_millis(100));
                    }
                }
            };
            let named = std::thread::Builder::new().name("libvirt-events".into());
            if let Err(error) = named.spawn(turn) {
                tracing::error!(%error, "there is no thread for libvirt's events");
            }
            Ok(())
        })
        .clone()
}

/// Tells of every change of a domain's life and of every device that left one, until the connection
/// closes.
pub(crate) fn subscribe(
    connect: &Connect,
    sink: impl Fn(Event) + Send + Sync + Clone + 'static,
) -> Result<(), Error> {
    // SAFETY: a callback's type is told by the event's id; libvirt's own macro for C makes the same
    // cast to the generic type. Both ids are registered with a function of their exact signature.
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
    // SAFETY: the connection lives while it is borrowed. `opaque` is a `Box<Sink>` that libvirt owns
    // from here on and gives back to `free` exactly once; a null domain means all domains.
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
        // SAFETY: libvirt does not free what it did not take.
        unsafe { free(opaque) };
        return Err(error);
    }
    Ok(())
}

/// # Safety
///
/// `opaque` is what [`register`] made, and is not used again.
unsafe extern "C" fn free(opaque: *mut c_void) {
    // SAFETY: by the caller's promise.
    drop(unsafe { Box::from_raw(opaque.cast::<Sink>()) });
}

/// # Safety
///
/// Called by libvirt with a domain that lives during the call and the `opaque` of [`register`].
unsafe extern "C" fn on_lifecycle(
    _: virt_sys::virConnectPtr,
    domain: virt_sys::virDomainPtr,
    _: c_int,
    _: c_int,
    opaque: *mut c_void,
) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe { tell(domain, opaque) };
    0
}

/// # Safety
///
/// As [`on_lifecycle`].
unsafe extern "C" fn on_device_removed(
    _: virt_sys::virConnectPtr,
    domain: virt_sys::virDomainPtr,
    _: *const std::ffi::c_char,
    opaque: *mut c_void,
) {
    // SAFETY: by the caller's promise.
    unsafe { tell(domain, opaque) };
}

/// # Safety
///
/// `domain` lives during the call, and `opaque` is a `Box<Sink>` that has not been freed.
unsafe fn tell(domain: virt_sys::virDomainPtr, opaque: *mut c_void) {
    let mut raw = [0u8; 16];
    // SAFETY: libvirt writes the 16 bytes of a uuid to where it is told.
    if unsafe { virt_sys::virDomainGetUUID(domain, raw.as_mut_ptr()) } < 0 {
        return;
    }
    // SAFETY: by the caller's promise; sinks are `Sync` and are only read.
    let sink = unsafe { &*opaque.cast::<Sink>() };
    // A panic must not pass through C.
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        sink(Event { domain: Uuid::from_bytes(raw) });
    }));
}

/// Nanoseconds that each of a running domain's processors has worked; `count` at most.
pub(crate) fn processor_times(domain: &Domain, count: u32) -> Result<Vec<u64>, Error> {
    let one = virt_sys::virVcpuInfo { number: 0, state: 0, cpuTime: 0, cpu: 0 };
    let mut found = vec![one; usize::try_from(count).unwrap_or_default()];
    let room = c_int::try_from(found.len()).unwrap_or(c_int::MAX);
    // SAFETY: the domain lives while it is borrowed; libvirt writes `room` entries at most to a place
    // that has so many, and no maps of processors, for which there is no place.
    let filled = unsafe {
        virt_sys::virDomainGetVcpus(
            domain.as_ptr(),
            found.as_mut_ptr(),
            room,
            std::ptr::null_mut(),
            0,
        )
    };
    done(filled)?;
    found.truncate(usize::try_from(filled).unwrap_or_default());
    Ok(found.iter().map(|info| info.cpuTime).collect())
}

/// What is being done to a domain, or with `VIR_DOMAIN_JOB_STATS_COMPLETED` in `flags` was done last.
/// (`virt` makes a `Vec` of libvirt's memory, and of none.)
pub(crate) fn job(domain: &Domain, flags: u32) -> Result<Job, Error> {
    let (mut kind, mut count): (c_int, c_int) = (0, 0);
    let mut values: virt_sys::virTypedParameterPtr = std::ptr::null_mut();
    // SAFETY: the domain lives while it is borrowed; libvirt writes to three places of ours and gives
    // `count` values, or none at all.
    done(unsafe {
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
    let truth = |name: &CStr| {
        let mut value = 0;
        // SAFETY: as above.
        let found =
            unsafe { virt_sys::virTypedParamsGetBoolean(values, count, name.as_ptr(), &mut value) };
        (found == 1).then_some(value == 1)
    };
    let words = |name: &CStr| {
        let mut value = std::ptr::null();
        // SAFETY: as above; the text belongs to the values and is copied before they are freed.
        unsafe {
            let found = virt_sys::virTypedParamsGetString(values, count, name.as_ptr(), &mut value);
            let is_text = found == 1 && !value.is_null();
            is_text.then(|| CStr::from_ptr(value).to_string_lossy().into_owned())
        }
    };
    let job = Job {
        kind: kind as u32,
        operation: integer(virt_sys::VIR_DOMAIN_JOB_OPERATION).unwrap_or_default() as u32,
        success: truth(virt_sys::VIR_DOMAIN_JOB_SUCCESS),
        message: words(virt_sys::VIR_DOMAIN_JOB_ERRMSG),
        memory_total: number(virt_sys::VIR_DOMAIN_JOB_MEMORY_TOTAL),
        memory_processed: number(virt_sys::VIR_DOMAIN_JOB_MEMORY_PROCESSED),
        memory_remaining: number(virt_sys::VIR_DOMAIN_JOB_MEMORY_REMAINING),
        disk_total: number(virt_sys::VIR_DOMAIN_JOB_DISK_TOTAL),
        disk_processed: number(virt_sys::VIR_DOMAIN_JOB_DISK_PROCESSED),
        disk_remaining: number(virt_sys::VIR_DOMAIN_JOB_DISK_REMAINING),
        memory_bps: number(virt_sys::VIR_DOMAIN_JOB_MEMORY_BPS),
        vfio_transferred: number(c"vfio_data_transferred"),
    };
    // SAFETY: libvirt made them for us, and nothing points into them any more.
    unsafe { virt_sys::virTypedParamsFree(values, count) };
    Ok(job)
}

/// Calls off what is being done to a domain.
pub(crate) fn abort_job(domain: &Domain) -> Result<(), Error> {
    // SAFETY: the domain lives while it is borrowed.
    done(unsafe { virt_sys::virDomainAbortJob(domain.as_ptr()) })
}

/// Lets a guest that is leaving go before its memory has.
pub(crate) fn start_post_copy(domain: &Domain) -> Result<(), Error> {
    // SAFETY: the domain lives while it is borrowed.
    done(unsafe { virt_sys::virDomainMigrateStartPostCopy(domain.as_ptr(), 0) })
}

/// Begins to copy disks of a running guest, as they are now.
pub(crate) fn begin_backup(domain: &Domain, xml: &str) -> Result<(), Error> {
    let xml = text(xml);
    // SAFETY: domain and text live while they are borrowed; no checkpoint is asked for.
    done(unsafe {
        virt_sys::virDomainBackupBegin(domain.as_ptr(), xml.as_ptr(), std::ptr::null(), 0)
    })
}

/// Interrupts a guest.
pub(crate) fn inject_nmi(domain: &Domain) -> Result<(), Error> {
    // SAFETY: the domain lives while it is borrowed.
    done(unsafe { virt_sys::virDomainInjectNMI(domain.as_ptr(), 0) })
}

/// Makes a node device known for good, without starting it.
pub(crate) fn define_node_device(connect: &Connect, xml: &str) -> Result<NodeDevice, Error> {
    let xml = text(xml);
    // SAFETY: connection and text live while they are borrowed. The result is null or a device of
    // which we own a reference, and so does the `NodeDevice`.
    unsafe {
        let device = virt_sys::virNodeDeviceDefineXML(connect.as_ptr(), xml.as_ptr(), 0);
        if device.is_null() { Err(Error::last_error()) } else { Ok(NodeDevice::from_ptr(device)) }
    }
}

/// Starts a node device that is known.
pub(crate) fn start_node_device(device: &NodeDevice) -> Result<(), Error> {
    // SAFETY: the device lives while it is borrowed.
    done(unsafe { virt_sys::virNodeDeviceCreate(device.as_ptr(), 0) })
}

/// Makes libvirt start a node device with the host.
pub(crate) fn autostart_node_device(device: &NodeDevice) -> Result<(), Error> {
    // SAFETY: the device lives while it is borrowed.
    done(unsafe { virt_sys::virNodeDeviceSetAutostart(device.as_ptr(), 1) })
}

/// Whether a node device is started.
pub(crate) fn is_node_device_active(device: &NodeDevice) -> Result<bool, Error> {
    // SAFETY: the device lives while it is borrowed.
    truth(unsafe { virt_sys::virNodeDeviceIsActive(device.as_ptr()) })
}

/// Whether a node device stays known when it is stopped.
pub(crate) fn is_node_device_persistent(device: &NodeDevice) -> Result<bool, Error> {
    // SAFETY: the device lives while it is borrowed.
    truth(unsafe { virt_sys::virNodeDeviceIsPersistent(device.as_ptr()) })
}

/// Forgets a node device.
pub(crate) fn undefine_node_device(device: &NodeDevice) -> Result<(), Error> {
    // SAFETY: the device lives while it is borrowed.
    done(unsafe { virt_sys::virNodeDeviceUndefine(device.as_ptr(), 0) })
}

/// Our XML holds no NUL byte; what came after one would not be read.
fn text(xml: &str) -> CString {
    CString::new(xml.split('\0').next().unwrap_or_default()).unwrap_or_default()
}

fn done(result: c_int) -> Result<(), Error> {
    if result < 0 { Err(Error::last_error()) } else { Ok(()) }
}

fn truth(result: c_int) -> Result<bool, Error> {
    done(result).map(|()| result == 1)
}
