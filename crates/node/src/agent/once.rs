//! What is done once to a guest that is as wanted: a snapshot, a crash dump. Tried is done: what
//! failed is reported, and not tried again by a later document.

use kilonova_hypervisor::Definition;
use kilonova_ids::ImageId;

use super::work::{Halt, Work};

const SNAPSHOT: &str = "snapshot";

impl Work {
    pub(super) async fn snapshot(
        &self,
        want: &Definition,
        image: ImageId,
        current: &(dyn Fn() -> Result<(), Halt> + Send + Sync),
    ) -> Result<(), Halt> {
        current()?;
        let file = self.state.join("snapshots").join(image.to_string());
        let sent = tokio::select! {
            sent = self.send(want, image, &file) => sent,
            halt = superseded(current) => Err(halt),
        };
        if let Err(error) = std::fs::remove_file(&file)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(file = %file.display(), %error, "a snapshot that was sent is left over");
        }
        if !matches!(sent, Err(Halt::Superseded)) {
            self.hypervisor.define(want).await?;
        }
        sent
    }

    async fn send(
        &self,
        want: &Definition,
        image: ImageId,
        file: &std::path::Path,
    ) -> Result<(), Halt> {
        self.hypervisor.snapshot(want.server, file.to_owned()).await?;
        self.link
            .keep_image(image, file)
            .await
            .map_err(|why| Halt::failed(SNAPSHOT, format!("the image service: {why}")))
    }

    pub(super) async fn crash_dump(
        &self,
        want: &Definition,
        current: &(dyn Fn() -> Result<(), Halt> + Send + Sync),
    ) -> Result<(), Halt> {
        current()?;
        let dumped = self.hypervisor.crash_dump(want.server).await;
        self.hypervisor.define(want).await?;
        Ok(dumped?)
    }
}

/// Returns once a newer document is there.
async fn superseded(current: &(dyn Fn() -> Result<(), Halt> + Send + Sync)) -> Halt {
    loop {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        if let Err(halt) = current() {
            return halt;
        }
    }
}
