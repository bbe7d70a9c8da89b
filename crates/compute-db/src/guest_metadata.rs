//! The rows of the metadata service: the password that a guest has set, and the EC2 numbers of images.

use kilonova_ids::{ImageId, ServerId};
use kilonova_store::{Migration, Tx, params};

use crate::Error;

/// Adds the password to the server's row, so that it never outlives the server, and a counter for images.
pub const GUEST_METADATA: Migration = Migration {
    name: "compute-0600-guest-metadata",
    sql: "
ALTER TABLE servers ADD COLUMN guest_password TEXT;
CREATE TABLE ec2_images (
    number {serial},
    image TEXT NOT NULL UNIQUE
);",
};

kilonova_store::statements! {
    /// The password of a guest.
    PASSWORD = "SELECT COALESCE(guest_password, '') AS guest_password FROM servers WHERE id = ?1";
    /// Stores a guest's first password.
    SET_PASSWORD = "UPDATE servers SET guest_password = ?2
        WHERE id = ?1 AND COALESCE(guest_password, '') = '' RETURNING id";
    /// Removes the password of a guest.
    CLEAR_PASSWORD = "UPDATE servers SET guest_password = NULL WHERE id = ?1";
    /// The EC2 number of an image.
    NUMBER = "SELECT number FROM ec2_images WHERE image = ?1";
    /// Assigns the next number to an image, once.
    ADD_NUMBER = "INSERT INTO ec2_images (image) VALUES (?1) ON CONFLICT (image) DO NOTHING";
}

/// The password that a server's guest has set, empty if it has set none; `None` if there is no such server.
///
/// # Errors
/// Store errors only; also for all functions below.
pub fn password(tx: &mut Tx<'_>, server: ServerId) -> Result<Option<String>, Error> {
    let row = tx.row(PASSWORD, params![server])?;
    Ok(row.map(|row| row.string("guest_password")).transpose()?)
}

/// Stores a guest's password; false if it has one already, or if there is no such server.
pub fn set_password(tx: &mut Tx<'_>, server: ServerId, password: &str) -> Result<bool, Error> {
    Ok(tx.row(SET_PASSWORD, params![server, password])?.is_some())
}

/// Removes a guest's password.
pub fn clear_password(tx: &mut Tx<'_>, server: ServerId) -> Result<(), Error> {
    tx.execute(CLEAR_PASSWORD, params![server])?;
    Ok(())
}

/// The EC2 number of an image, if it has one.
pub fn image_number(tx: &mut Tx<'_>, image: ImageId) -> Result<Option<i64>, Error> {
    let row = tx.row(NUMBER, params![image])?;
    Ok(row.map(|row| row.int("number")).transpose()?)
}

/// Assigns an EC2 number to an image, unless it has one.
pub fn number_image(tx: &mut Tx<'_>, image: ImageId) -> Result<(), Error> {
    tx.execute(ADD_NUMBER, params![image])?;
    Ok(())
}
