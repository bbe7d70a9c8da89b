//! RBD images: QEMU opens them, and the host has nothing to connect.

use kilonova_node_api::{Rbd, VolumeSource};

use crate::config::VolumesConfig;

/// The source of an image. Cinder's user and secret take precedence over the host's options, as
/// upstream.
pub(crate) fn source(config: &VolumesConfig, image: &Rbd) -> Result<VolumeSource, String> {
    let login = if image.auth {
        let user = image.user.clone().or_else(|| config.rbd_user.clone());
        let user = user.ok_or("Cinder names no Ceph user: set [libvirt] rbd_user")?;
        let secret = image.secret.or(config.rbd_secret).ok_or_else(|| {
            format!(
                "Cinder names no libvirt secret for the Ceph user {user}: set [libvirt] \
                 rbd_secret_uuid, or rbd_secret_uuid in cinder.conf"
            )
        })?;
        Some((user, secret))
    } else {
        config.rbd_user.clone().zip(config.rbd_secret)
    };
    let (user, secret) = login.unzip();
    Ok(VolumeSource::Rbd { name: image.name.clone(), hosts: image.hosts.clone(), user, secret })
}
