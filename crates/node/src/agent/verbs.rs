//! One-shot verbs on a guest in its desired state: the snapshot, and the verbs that the hypervisor carries out alone.
//! A verb is attempted once: a failure is reported, and a later document never repeats the verb.

use kilonova_hypervisor::Definition;
use kilonova_ids::ImageId;
use kilonova_node_api::{GuestVerb, Phase, SNAPSHOT_STEP};

use super::notes::{End, Last, Note};
use super::work::{Halt, Turn, Work};

/// Directory of the disk copies that are being uploaded, each named after its image.
pub(super) const COPIES: &str = "snapshots";

impl Work {
    pub(super) async fn snapshot(
        &self,
        definition: &Definition,
        image: ImageId,
        turn: &Turn<'_>,
    ) -> Result<(), Halt> {
        turn.current()?;
        let file = self.state.join(COPIES).join(image.to_string());
        let sent = tokio::select! {
            sent = self.send(definition, image, &file, turn) => sent,
            halt = superseded(turn) => Err(halt),
        };
        if let Err(error) = std::fs::remove_file(&file)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(file = %file.display(), %error, "could not remove the disk copy of a snapshot");
        }
        if !matches!(sent, Err(Halt::Superseded)) {
            self.tried(definition, &sent, turn).await?;
        }
        sent
    }

    async fn send(
        &self,
        definition: &Definition,
        image: ImageId,
        file: &std::path::Path,
        turn: &Turn<'_>,
    ) -> Result<(), Halt> {
        turn.say(Phase::Copying);
        let format = self.hypervisor.snapshot(definition.server, file.to_owned()).await?;
        turn.say(Phase::Sending);
        self.link
            .upload_image(image, format, file)
            .await
            .map_err(|why| Halt::failed(SNAPSHOT_STEP, format!("the image service: {why}")))
    }

    pub(super) async fn guest_verb(
        &self,
        definition: &Definition,
        verb: GuestVerb,
        turn: &Turn<'_>,
    ) -> Result<(), Halt> {
        turn.current()?;
        let result = self.hypervisor.carry_out(definition.server, verb).await.map_err(Halt::from);
        self.tried(definition, &result, turn).await?;
        result
    }

    /// Records an attempt in the domain, so that it is not repeated. A failure is noted first, so
    /// that a crash in between does not turn it into a success.
    pub(super) async fn tried(
        &self,
        definition: &Definition,
        result: &Result<(), Halt>,
        turn: &Turn<'_>,
    ) -> Result<(), Halt> {
        if let Err(Halt::Failed { step, message }) = result {
            let end = End::Failed { step: step.clone(), message: message.clone() };
            let last = Some(Last { generation: turn.generation, end });
            let note = self.notes.get(definition.server).unwrap_or_default();
            self.note(definition.server, Note { last, ..note }, step)?;
        }
        Ok(self.hypervisor.define(definition).await?)
    }
}

/// Returns when a newer document arrives.
async fn superseded(turn: &Turn<'_>) -> Halt {
    loop {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        if let Err(halt) = turn.current() {
            return halt;
        }
    }
}
