//! The numbers in the EC2 names of images. The cloud assigns a number once and never changes it.
//!
//! A server's row contains the numbers of its images, so that its host and the metadata service give the guest the same
//! names. A copy in memory saves the query for images that are booted often.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kilonova_compute_db::guest_metadata as rows;
use kilonova_compute_db::servers::Spec;
use kilonova_ids::ImageId;
use kilonova_node_api::ImageNumbers;
use kilonova_store::Tx;

use crate::boot::machine;
use crate::{Compute, Error};

/// Maximum number of images whose numbers are in memory.
const MOST: usize = 10_000;

/// The numbers that this process has seen; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct SeenImageNumbers(Arc<Mutex<HashMap<ImageId, i64>>>);

impl SeenImageNumbers {
    fn lock(&self) -> MutexGuard<'_, HashMap<ImageId, i64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The numbers of the images, if all of them are known.
    fn of(&self, images: [Option<ImageId>; 3]) -> Option<ImageNumbers> {
        let seen = self.lock();
        let mut numbers = [None; 3];
        for (number, image) in numbers.iter_mut().zip(images) {
            if let Some(image) = image {
                *number = Some(*seen.get(&image)?);
            }
        }
        Some(named(numbers))
    }

    fn keep(&self, images: [Option<ImageId>; 3], numbers: ImageNumbers) {
        let mut seen = self.lock();
        if seen.len() >= MOST {
            seen.clear();
        }
        let numbers = [numbers.machine, numbers.kernel, numbers.ramdisk];
        for (image, number) in images.into_iter().zip(numbers) {
            if let (Some(image), Some(number)) = (image, number) {
                seen.insert(image, number);
            }
        }
    }
}

impl Compute {
    /// The numbers of the images of a server that is about to be created. An image without a number gets one.
    ///
    /// # Errors
    /// Store errors only.
    pub async fn image_numbers(&self, spec: &Spec) -> Result<ImageNumbers, Error> {
        let images = images(spec);
        if let Some(numbers) = self.seen_image_numbers.of(images) {
            return Ok(numbers);
        }
        let known = self.store.read(move |tx| find(tx, images)).await?;
        let is_complete = images.iter().zip([known.machine, known.kernel, known.ramdisk]).all(
            |(image, number): (&Option<ImageId>, Option<i64>)| image.is_some() == number.is_some(),
        );
        let numbers =
            if is_complete { known } else { self.store.write(move |tx| give(tx, images)).await? };
        self.seen_image_numbers.keep(images, numbers);
        Ok(numbers)
    }
}

/// The numbers of the images of a server whose row changes in this transaction.
///
/// # Errors
/// Store errors only.
pub fn of_changed(tx: &mut Tx<'_>, spec: &Spec) -> Result<ImageNumbers, Error> {
    give(tx, images(spec))
}

/// The images of the root disk, the kernel and the initial RAM disk.
fn images(spec: &Spec) -> [Option<ImageId>; 3] {
    let machine = machine::of(spec, &spec.flavor);
    [spec.image, machine.kernel, machine.ramdisk]
}

fn find(tx: &mut Tx<'_>, images: [Option<ImageId>; 3]) -> Result<ImageNumbers, Error> {
    let mut numbers = [None; 3];
    for (number, image) in numbers.iter_mut().zip(images) {
        if let Some(image) = image {
            *number = rows::image_number(tx, image)?;
        }
    }
    Ok(named(numbers))
}

fn give(tx: &mut Tx<'_>, images: [Option<ImageId>; 3]) -> Result<ImageNumbers, Error> {
    for image in images.into_iter().flatten() {
        if rows::image_number(tx, image)?.is_none() {
            rows::number_image(tx, image)?;
        }
    }
    find(tx, images)
}

fn named([machine, kernel, ramdisk]: [Option<i64>; 3]) -> ImageNumbers {
    ImageNumbers { machine, kernel, ramdisk }
}
