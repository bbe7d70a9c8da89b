//! Our mark on a domain: set, changed, removed.

use virt::domain::Domain;
use virt::error::{Error as VirtError, ErrorNumber};
use virt_sys as sys;

use crate::connection::is;
use crate::life::{KEY, Mark, NAMESPACE};

/// Sets the mark of a domain as it is kept, or removes it.
pub(crate) fn set(domain: &Domain, mark: Option<Mark>) -> Result<(), VirtError> {
    let element = mark.map(Mark::element);
    let result = domain.set_metadata(
        sys::VIR_DOMAIN_METADATA_ELEMENT as i32,
        element.as_deref(),
        Some(KEY),
        Some(NAMESPACE),
        sys::VIR_DOMAIN_AFFECT_CONFIG,
    );
    match result {
        Err(error) if mark.is_none() && is(&error, ErrorNumber::NoDomainMetadata) => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Ok(()),
    }
}
