//! Sets and removes our migration mark on a domain.

use virt::domain::Domain;
use virt::error::{Error as VirtError, ErrorNumber};
use virt_sys as sys;

use crate::connection::has_code;
use crate::state::{KEY, Mark, NAMESPACE};

/// Sets the mark in the persistent definition of a domain, or removes it.
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
        Err(error) if mark.is_none() && has_code(&error, ErrorNumber::NoDomainMetadata) => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Ok(()),
    }
}
