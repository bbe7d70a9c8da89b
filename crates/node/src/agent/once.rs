//! What is done once to a guest that is as wanted: a snapshot, a crash dump. Tried is done: what
//! failed is reported, and not tried again by a later document.

use kilonova_hypervisor::Definition;
use kilonova_ids::ImageId;
use kilonova_node_api::Phase;

use super::notes::{End, Last, Note};
use super::work::{Halt, Turn, Work};

const SNAPSHOT: &str = "snapshot";
/// Folder of the copies of disks that are on their way to the image service, each by its image.
pub(super) const COPIES: &str = "snapshots";

impl Work {
    pub(super) async fn snapshot(
        &self,
        want: &Definition,
        image: ImageId,
        turn: &Turn<'_>,
    ) -> Result<(), Halt> {
        turn.current()?;
        let file = self.state.join(COPIES).join(image.to_string());
        let sent = tokio::select! {
            sent = self.send(want, image, &file, turn) => sent,
            halt = superseded(turn) => Err(halt),
        };
        if let Err(error) = std::fs::remove_file(&file)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(file = %file.display(), %error, "a snapshot that was sent is left over");
        }
        if !matches!(sent, Err(Halt::Superseded)) {
            self.tried(want, &sent, turn).await?;
        }
        sent
    }

    async fn send(
        &self,
        want: &Definition,
        image: ImageId,
        file: &std::path::Path,
        turn: &Turn<'_>,
    ) -> Result<(), Halt> {
        turn.say(Phase::Copying);
        let format = self.hypervisor.snapshot(want.server, file.to_owned()).await?;
        turn.say(Phase::Sending);
        self.link
            .keep_image(image, format, file)
            .await
            .map_err(|why| Halt::failed(SNAPSHOT, format!("the image service: {why}")))
    }

    pub(super) async fn crash_dump(&self, want: &Definition, turn: &Turn<'_>) -> Result<(), Halt> {
        turn.current()?;
        let dumped = self.hypervisor.crash_dump(want.server).await.map_err(Halt::from);
        self.tried(want, &dumped, turn).await?;
        dumped
    }

    /// Remembers with the domain that something was tried, so that it is not tried again; and before
    /// that, if it failed, why: a death in between must not make a success of it.
    pub(super) async fn tried(
        &self,
        want: &Definition,
        came: &Result<(), Halt>,
        turn: &Turn<'_>,
    ) -> Result<(), Halt> {
        if let Err(Halt::Failed { step, message }) = came {
            let end = End::Failed { step: step.clone(), message: message.clone() };
            let last = Some(Last { generation: turn.generation, end });
            let note = self.notes.get(want.server).unwrap_or_default();
            self.note(want.server, Note { last, ..note }, step)?;
        }
        Ok(self.hypervisor.define(want).await?)
    }
}

/// Returns once a newer document is there.
async fn superseded(turn: &Turn<'_>) -> Halt {
    loop {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        if let Err(halt) = turn.current() {
            return halt;
        }
    }
}
