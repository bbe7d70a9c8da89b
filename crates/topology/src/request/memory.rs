//! The page size and the locking of a guest's memory.

use super::{Asked, Refusal, truth};
use crate::PageSize;

impl Asked<'_> {
    /// The requested page size. An image may only narrow a flavor's `any` or `large`.
    pub(super) fn page_size(&self) -> Result<Option<PageSize>, Refusal> {
        let (flavor, image) = self.both("mem_page_size");
        let forbidden = |asked: &str, against: &str| Refusal::MemoryPageSizeForbidden {
            pagesize: asked.to_owned(),
            against: against.to_owned(),
        };
        match (flavor, image) {
            (None, None) => Ok(None),
            (None, Some(image)) => Err(forbidden(image, "<empty>")),
            (Some(flavor), image) => {
                let size = page_size(flavor)?;
                match (size, image) {
                    (_, None) => Ok(Some(size)),
                    (PageSize::Any | PageSize::Large, Some(image)) => page_size(image).map(Some),
                    (PageSize::Small | PageSize::Bytes(_), Some(image)) => {
                        Err(forbidden(image, flavor))
                    }
                }
            }
        }
    }

    /// True if flavor or image locks the guest's memory in host memory.
    pub(super) fn locked_memory(&self) -> Result<bool, Refusal> {
        let (flavor, image) = self.both("locked_memory");
        let (flavor, image) = (flavor.map(truth), image.map(truth));
        if let (Some(flavor), Some(image)) = (flavor, image)
            && flavor != image
        {
            return Err(Refusal::FlavorImageLockedMemoryConflict { image, flavor });
        }
        let locked = flavor.or(image).unwrap_or(false);
        let (of_flavor, of_image) = self.both("mem_page_size");
        if locked && of_flavor.is_none() && of_image.is_none() {
            return Err(Refusal::LockMemoryForbidden);
        }
        Ok(locked)
    }
}

fn page_size(text: &str) -> Result<PageSize, Refusal> {
    let size = PageSize::parse(text);
    size.ok_or_else(|| Refusal::MemoryPageSizeInvalid { pagesize: text.to_owned() })
}

impl PageSize {
    /// Reads a page size: `small`, `large`, `any`, or an amount. A number is KiB. With a unit it is
    /// bytes (`2048KiB`, `2MB`, `1GB`) or bits (`b`, `bit`), always in powers of 1024.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "any" => Some(Self::Any),
            "large" => Some(Self::Large),
            "small" => Some(Self::Small),
            _ => bytes(text).map(Self::Bytes),
        }
    }
}

fn bytes(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return None;
    }
    // A number that overflows is larger than any host's page size.
    let number: u64 = number.parse().unwrap_or(u64::MAX);
    if unit.is_empty() {
        return Some(number.saturating_mul(1024));
    }
    let (prefix, bits) = match unit.strip_suffix('B') {
        Some(prefix) => (prefix, false),
        None => (unit.strip_suffix("bit").or_else(|| unit.strip_suffix('b'))?, true),
    };
    let factor: u64 = match prefix {
        "" => 1,
        "K" | "Ki" => 1 << 10,
        "M" | "Mi" => 1 << 20,
        "G" | "Gi" => 1 << 30,
        "T" | "Ti" => 1 << 40,
        _ => return None,
    };
    let amount = number.saturating_mul(factor);
    Some(if bits { amount.div_ceil(8) } else { amount })
}
