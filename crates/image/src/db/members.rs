//! Rows of `image_members`: the projects with which an image is shared.

use jiff::Timestamp;
use kilonova_ids::ImageId;
use kilonova_store::{Error, Row, Tx, params, statements};

use crate::record::{Acceptance, Member};

/// Selects [`Member`]s.
macro_rules! select {
    () => {
        "SELECT member, status, created_at, updated_at FROM image_members"
    };
}

statements! {
    /// Adds a member.
    INSERT = "INSERT INTO image_members (image_id, member, status, created_at, updated_at)
        VALUES (?1, ?2, ?3, ?4, ?4)";
    /// One member.
    ONE = concat!(select!(), " WHERE image_id = ?1 AND member = ?2");
    /// The members of an image.
    OF_IMAGE = concat!(select!(), " WHERE image_id = ?1 ORDER BY created_at, member");
    /// The number of an image's members.
    COUNT = "SELECT COUNT(*) AS count FROM image_members WHERE image_id = ?1";
    /// Sets a member's decision.
    SET_STATUS = "UPDATE image_members SET status = ?3, updated_at = ?4
        WHERE image_id = ?1 AND member = ?2";
    /// Deletes a member.
    DELETE = "DELETE FROM image_members WHERE image_id = ?1 AND member = ?2";
}

fn read(row: &Row) -> Result<Member, Error> {
    Ok(Member {
        project: row.string("member")?,
        status: Acceptance::parse(row.text("status")?)
            .ok_or_else(|| Error::Shape("image_members: status".into()))?,
        created_at: row.time("created_at")?,
        updated_at: row.time("updated_at")?,
    })
}

/// Adds a member.
pub(crate) fn insert(tx: &mut Tx<'_>, image: ImageId, member: &Member) -> Result<(), Error> {
    let values = params![image, &member.project, member.status.as_str(), member.created_at];
    tx.execute(INSERT, values).map(|_| ())
}

/// One member.
pub(crate) fn one(tx: &mut Tx<'_>, image: ImageId, project: &str) -> Result<Option<Member>, Error> {
    tx.row(ONE, params![image, project])?.as_ref().map(read).transpose()
}

/// The members of an image.
pub(crate) fn of_image(tx: &mut Tx<'_>, image: ImageId) -> Result<Vec<Member>, Error> {
    tx.rows(OF_IMAGE, params![image])?.iter().map(read).collect()
}

/// The number of an image's members.
pub(crate) fn count(tx: &mut Tx<'_>, image: ImageId) -> Result<i64, Error> {
    tx.row(COUNT, params![image])?.map_or(Ok(0), |row| row.int("count"))
}

/// Sets a member's decision; returns false if the project is not a member.
pub(crate) fn set_status(
    tx: &mut Tx<'_>,
    image: ImageId,
    project: &str,
    status: Acceptance,
    now: Timestamp,
) -> Result<bool, Error> {
    Ok(tx.execute(SET_STATUS, params![image, project, status.as_str(), now])? > 0)
}

/// Deletes a member; returns false if the project is not a member.
pub(crate) fn delete(tx: &mut Tx<'_>, image: ImageId, project: &str) -> Result<bool, Error> {
    Ok(tx.execute(DELETE, params![image, project])? > 0)
}
