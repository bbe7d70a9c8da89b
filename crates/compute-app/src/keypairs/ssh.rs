//! OpenSSH public keys: `type base64 comment`. The base64 repeats the type and then contains the
//! key's numbers, each preceded by its length (RFC 4253 6.6, RFC 5656, RFC 8709).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kilonova_wire::Refusal;
use md5::{Digest, Md5};

/// The valid lengths of the fields after the type; a length of `None` allows any except zero.
fn fields(kind: &str) -> Option<&'static [Option<usize>]> {
    Some(match kind {
        "ssh-rsa" => &[None, None],
        "ssh-ed25519" => &[Some(32)],
        "ecdsa-sha2-nistp256" => &[Some(8), Some(65)],
        "ecdsa-sha2-nistp384" => &[Some(8), Some(97)],
        "ecdsa-sha2-nistp521" => &[Some(8), Some(133)],
        "sk-ssh-ed25519@openssh.com" => &[Some(32), None],
        "sk-ecdsa-sha2-nistp256@openssh.com" => &[Some(8), Some(65), None],
        _ => return None,
    })
}

fn field<'a>(blob: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = blob.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let (field, rest) = rest.split_at_checked(length)?;
    *blob = rest;
    Some(field)
}

fn is_key(kind: &str, mut blob: &[u8]) -> bool {
    let Some(lengths) = fields(kind) else { return false };
    field(&mut blob) == Some(kind.as_bytes())
        && lengths.iter().all(|length| {
            field(&mut blob).is_some_and(|field| match length {
                Some(length) => field.len() == *length,
                None => !field.is_empty(),
            })
        })
        && blob.is_empty()
}

/// The fingerprint of an OpenSSH public key: MD5 of the key, as in Nova.
///
/// # Errors
/// 400 if the text is not such a key.
pub(super) fn fingerprint(public_key: &str) -> Result<String, Refusal> {
    let invalid =
        || Refusal::bad_request("Keypair data is invalid: failed to generate fingerprint");
    let mut words = public_key.split_ascii_whitespace();
    let kind = words.next().ok_or_else(invalid)?;
    let encoded = words.next().ok_or_else(invalid)?;
    let blob = STANDARD.decode(encoded).map_err(|_| invalid())?;
    if public_key.trim().contains('\n') || !is_key(kind, &blob) {
        return Err(invalid());
    }
    Ok(super::colons(&Md5::digest(&blob)))
}

#[cfg(test)]
mod tests {
    use super::fingerprint;

    const RSA: &str = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQDx8nkQv/zgGgB4rMYmIf+6A4l6Rr+o/6lHBQdW5aYd44bd8JttDCE/F/pNRr0lRE+PiqSPO8nDPHw0010JeMH9gYgnnFlyY3/OcJ02RhIPyyxYpv9FhY+2YiUkpwFOcLImyrxEsYXpD/0d3ac30bNH6Sw9JD9UZHYcpSxsIbECHw== x\n";
    const ED25519: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMzndcA7TIh/GcN3SymR9QrlrfWCZOmWHUi/CxP2cNtm";

    #[test]
    fn fingerprints_are_those_that_nova_gives() {
        let of = |key: &str| fingerprint(key).expect("the key has a fingerprint");
        assert_eq!(of(RSA), "1e:2c:9b:56:79:4b:45:77:f9:ca:7a:98:2c:b0:d5:3c");
        assert_eq!(of(ED25519), "23:95:0f:0b:90:08:ee:2f:c2:df:5e:64:09:ad:6a:ab");
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let two = format!("{ED25519}\n{ED25519}");
        let cut = &ED25519[..ED25519.len() - 4];
        let other = ED25519.replacen("ssh-ed25519", "ssh-rsa", 1);
        for text in
            ["", "ssh-rsa", "ssh-rsa !!!!", "ssh-foo AAAA x", "ssh-rsa AAAA", &two, cut, &other]
        {
            assert!(fingerprint(text).is_err(), "{text:?}");
        }
    }
}
