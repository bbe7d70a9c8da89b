//! A small RFB 3.8 server (RFC 6143): security type None, one picture that echoes the client's
//! typing, raw encoding. Pointer and clipboard are read and ignored.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufStream};

use super::picture::{HEIGHT, Picture, WIDTH};

const VERSION: &[u8; 12] = b"RFB 003.008\n";
const SECURITY_NONE: u8 = 1;
/// Keys without a character.
const BACKSPACE: u32 = 0xff08;
const RETURN: u32 = 0xff0d;
/// Maximum number of characters shown of a line.
const MAX_TYPED: usize = 20;
/// Maximum number of bytes read of a clipboard.
const MAX_CLIPBOARD: u32 = 16 * 1024 * 1024;

/// The pixel format that a client requests.
#[derive(Debug, Clone, Copy)]
struct PixelFormat {
    bytes: usize,
    big_endian: bool,
    /// The largest value of red, green and blue, and the position of each.
    colors: [(u16, u8); 3],
}

/// The format that the server offers: 32 bits, of which 24 are the color.
const OFFERED: [u8; 16] = [32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 16, 8, 0, 0, 0, 0];

impl PixelFormat {
    fn read(raw: [u8; 16]) -> io::Result<Self> {
        let bytes = match raw[0] {
            8 => 1,
            16 => 2,
            32 => 4,
            _ => return Err(invalid("a pixel has 8, 16 or 32 bits")),
        };
        if raw[3] == 0 {
            return Err(invalid("there are no color maps"));
        }
        let largest = |at: usize| u16::from_be_bytes([raw[at], raw[at + 1]]);
        let colors = [(largest(4), raw[10]), (largest(6), raw[11]), (largest(8), raw[12])];
        Ok(Self { bytes, big_endian: raw[2] != 0, colors })
    }

    /// Appends a grey pixel.
    fn put(self, grey: u8, pixels: &mut Vec<u8>) {
        let part = |(largest, shift): (u16, u8)| {
            let value = u32::from(grey) * u32::from(largest) / 255;
            value.checked_shl(u32::from(shift)).unwrap_or_default()
        };
        let value = self.colors.into_iter().fold(0, |value, color| value | part(color));
        if self.big_endian {
            pixels.extend(&value.to_be_bytes()[4 - self.bytes..]);
        } else {
            pixels.extend(&value.to_le_bytes()[..self.bytes]);
        }
    }
}

/// Serves one client until it disconnects.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    name: &str,
) -> io::Result<()> {
    let mut stream = BufStream::new(stream);
    shake_hands(&mut stream, name).await?;
    let mut typed = String::new();
    let mut format = PixelFormat::read(OFFERED)?;
    // True if the picture differs from the last one sent, and if the client awaits another one.
    let (mut has_changed, mut is_awaited) = (false, false);
    loop {
        let kind = match stream.read_u8().await {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            kind => kind?,
        };
        match kind {
            // SetPixelFormat.
            0 => {
                let mut message = [0; 19];
                stream.read_exact(&mut message).await?;
                let mut raw = [0; 16];
                raw.copy_from_slice(&message[3..]);
                format = PixelFormat::read(raw)?;
            }
            // SetEncodings: every client understands raw.
            2 => {
                stream.read_u8().await?;
                let count = stream.read_u16().await?;
                skip(&mut stream, u64::from(count) * 4).await?;
            }
            // FramebufferUpdateRequest. An incremental one is answered once the picture has changed.
            3 => {
                let mut message = [0; 9];
                stream.read_exact(&mut message).await?;
                is_awaited = true;
                has_changed |= message[0] == 0;
            }
            // KeyEvent.
            4 => {
                let is_down = stream.read_u8().await? != 0;
                stream.read_u16().await?;
                let key = stream.read_u32().await?;
                if is_down {
                    has_changed |= press(key, &mut typed);
                }
            }
            // PointerEvent.
            5 => skip(&mut stream, 5).await?,
            // ClientCutText.
            6 => {
                skip(&mut stream, 3).await?;
                let length = stream.read_u32().await?;
                if length > MAX_CLIPBOARD {
                    return Err(invalid("the clipboard is too long"));
                }
                skip(&mut stream, u64::from(length)).await?;
            }
            _ => return Err(invalid("the message is unknown")),
        }
        if has_changed && is_awaited {
            send(&mut stream, &Picture::of(name, &typed), format).await?;
            (has_changed, is_awaited) = (false, false);
        }
    }
}

/// Applies a key to what was typed; true if that changes it.
fn press(key: u32, typed: &mut String) -> bool {
    match (key, char::from_u32(key)) {
        (BACKSPACE, _) => typed.pop().is_some(),
        (RETURN, _) => !std::mem::take(typed).is_empty(),
        (_, Some(letter)) if letter == ' ' || letter.is_ascii_graphic() => {
            if typed.len() >= MAX_TYPED {
                typed.remove(0);
            }
            typed.push(letter);
            true
        }
        _ => false,
    }
}

async fn shake_hands<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut BufStream<S>,
    name: &str,
) -> io::Result<()> {
    stream.write_all(VERSION).await?;
    stream.flush().await?;
    let mut version = [0; 12];
    stream.read_exact(&mut version).await?;
    if version != *VERSION {
        return Err(invalid("the client does not use RFB 3.8"));
    }
    stream.write_all(&[1, SECURITY_NONE]).await?;
    stream.flush().await?;
    if stream.read_u8().await? != SECURITY_NONE {
        return Err(invalid("the only security type is None"));
    }
    stream.write_u32(0).await?;
    stream.flush().await?;
    // ClientInit: whether to share the display, which is always shared.
    stream.read_u8().await?;
    stream.write_u16(WIDTH).await?;
    stream.write_u16(HEIGHT).await?;
    stream.write_all(&OFFERED).await?;
    stream.write_u32(u32::try_from(name.len()).unwrap_or_default()).await?;
    stream.write_all(name.as_bytes()).await?;
    stream.flush().await
}

/// Sends the whole picture.
async fn send<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut BufStream<S>,
    picture: &Picture,
    format: PixelFormat,
) -> io::Result<()> {
    // One rectangle at the origin, in encoding 0.
    stream.write_all(&[0, 0, 0, 1, 0, 0, 0, 0]).await?;
    stream.write_u16(WIDTH).await?;
    stream.write_u16(HEIGHT).await?;
    stream.write_u32(0).await?;
    let mut line = Vec::with_capacity(usize::from(WIDTH) * format.bytes);
    for y in 0..HEIGHT {
        line.clear();
        (0..WIDTH).for_each(|x| format.put(picture.grey(x, y), &mut line));
        stream.write_all(&line).await?;
    }
    stream.flush().await
}

async fn skip<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut BufStream<S>,
    bytes: u64,
) -> io::Result<()> {
    let skipped = tokio::io::copy(&mut stream.take(bytes), &mut tokio::io::sink()).await?;
    if skipped == bytes { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_client_sees_the_picture_in_its_own_pixel_format() {
        let (mut client, server) = tokio::io::duplex(1024);
        let served = tokio::spawn(async move { serve(server, "one").await });
        let mut version = [0; 12];
        client.read_exact(&mut version).await.expect("the version arrives");
        assert_eq!(&version, VERSION);
        client.write_all(VERSION).await.expect("the version is sent");
        assert_eq!(client.read_u16().await.expect("the types arrive"), 0x0101);
        client.write_u8(SECURITY_NONE).await.expect("the type is sent");
        assert_eq!(client.read_u32().await.expect("the result arrives"), 0);
        client.write_u8(1).await.expect("ClientInit is sent");
        let size = [client.read_u16().await, client.read_u16().await];
        assert_eq!(size.map(|side| side.expect("the size arrives")), [WIDTH, HEIGHT]);
        let mut rest = [0; 16 + 4 + 3];
        client.read_exact(&mut rest).await.expect("the name arrives");
        assert_eq!((&rest[..16], &rest[20..]), (&OFFERED[..], &b"one"[..]));
        // 16 bits, big endian, 5 for red, 6 for green, 5 for blue.
        let format = [16, 16, 1, 1, 0, 31, 0, 63, 0, 31, 11, 5, 0, 0, 0, 0];
        client.write_all(&[&[0; 4][..], &format].concat()).await.expect("the format is sent");
        let keys = [&[2, 0, 0, 1, 0, 0, 0, 0][..], &[4, 1, 0, 0, 0, 0, 0, 65], &[5, 0, 0, 1, 0, 1]];
        client.write_all(&keys.concat()).await.expect("keys and pointer are sent");
        client.write_all(&[6, 0, 0, 0, 0, 0, 0, 2, b'h', b'i']).await.expect("the text is sent");
        client.write_all(&[3, 0, 0, 0, 0, 0, 0, 9, 0, 9]).await.expect("the request is sent");
        let mut head = [0; 16];
        client.read_exact(&mut head).await.expect("the update arrives");
        assert_eq!(head[..4], [0, 0, 0, 1]);
        let mut pixels = vec![0; usize::from(WIDTH) * usize::from(HEIGHT) * 2];
        client.read_exact(&mut pixels).await.expect("the pixels arrive");
        let shades: std::collections::BTreeSet<_> = pixels.chunks(2).collect();
        assert_eq!(shades.len(), 2, "ground and text");
        // The next picture is sent only after the next key.
        let before = pixels.clone();
        for key in [u32::from('b'), BACKSPACE] {
            client.write_all(&[3, 1, 0, 0, 0, 0, 0, 9, 0, 9]).await.expect("the request is sent");
            let press = [&[4, 1, 0, 0][..], &key.to_be_bytes(), &[4, 0, 0, 0], &key.to_be_bytes()];
            client.write_all(&press.concat()).await.expect("the key is sent");
            client.read_exact(&mut head).await.expect("the update arrives");
            client.read_exact(&mut pixels).await.expect("the pixels arrive");
            assert_eq!(pixels == before, key == BACKSPACE, "{key:x}");
        }
        drop(client);
        served.await.expect("the server ends").expect("it ends without an error");
    }

    #[tokio::test]
    async fn a_client_that_breaks_the_protocol_is_disconnected() {
        for sent in [&b"GET / HTTP/1.1\r\n"[..], b"RFB 003.008\n\x02", b"RFB 003.008\n\x01\x01\x09"]
        {
            let (mut client, server) = tokio::io::duplex(1024);
            let served = tokio::spawn(async move { serve(server, "one").await });
            client.write_all(sent).await.expect("the bytes are sent");
            let error = served.await.expect("the server ends").expect_err("it is an error");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{sent:?}");
        }
    }
}
