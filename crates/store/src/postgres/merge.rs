//! The byte stream of a connection: statements sent together end with one `Sync`.
//!
//! tokio-postgres ends every statement with a `Sync`. The server answers each with a separate
//! packet, and each packet wakes the waiting thread: for the thirty statements of a boot, that is
//! most of the latency. This stream therefore omits the `Sync` of a statement if another one
//! follows it in the same write, and gives the client the `ReadyForQuery` that it expects.
//!
//! ```text
//!   client    B E S  B E S  B E S  Q         C Z  C Z  C Z  C Z
//!   server    B E    B E    B E S  Q         C    C    C Z  C Z
//! ```
//!
//! After an error the server ignores everything up to the `Sync`. For each ignored statement, the
//! stream gives the client the server's answer to a statement in a failed transaction. It merges
//! only requests that consist of `Bind` and `Execute`, as the statements of transactions do. This
//! file must never change the content of a message.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};

/// Maximum number of bytes per read.
const CHUNK: usize = 16 * 1024;
/// The size of a message's kind and length, in bytes.
const HEADER: usize = 5;

/// `ReadyForQuery` in a transaction, and in a failed transaction.
const READY: &[u8] = b"Z\0\0\0\x05T";
const FAILED: &[u8] = b"Z\0\0\0\x05E";
/// The server's answer to a statement in a failed transaction.
const IGNORED: &[u8] = b"E\0\0\0\x6bSERROR\0VERROR\0C25P02\0\
    Mcurrent transaction is aborted, commands ignored until end of transaction block\0\0";

/// The end of a request to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The server sends `ReadyForQuery`.
    Answered,
    /// The `Sync` was omitted.
    Merged,
}

/// A stream of messages to and from a server.
pub(super) struct Merged<S> {
    inner: S,
    /// True once the server was ready for the first time: until then the client is logging in.
    has_begun: bool,
    /// Bytes for the server.
    out: BytesMut,
    /// Bytes from the server that are not yet a whole message.
    raw: BytesMut,
    /// Bytes for the client.
    given: BytesMut,
    /// The ends of the requests that the server has not answered, in order.
    ends: VecDeque<End>,
}

impl<S> Merged<S> {
    pub(super) fn new(inner: S) -> Self {
        Self {
            inner,
            has_begun: false,
            out: BytesMut::new(),
            raw: BytesMut::new(),
            given: BytesMut::new(),
            ends: VecDeque::new(),
        }
    }

    /// Takes messages from the client, which writes only whole messages. A partial message is an
    /// error, because it would be lost.
    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.has_begun {
            self.out.extend_from_slice(bytes);
            return Ok(());
        }
        let mut messages = Messages(bytes);
        // The kinds of this request's messages so far.
        let mut request = [0; 2];
        let mut count = 0;
        while let Some(message) = messages.next() {
            match message.kind() {
                b'S' => {
                    let is_statement = count == 2 && request == *b"BE";
                    let goes_on =
                        Messages(messages.0).next().is_some_and(|next| next.kind() == b'B');
                    if is_statement && goes_on {
                        self.ends.push_back(End::Merged);
                    } else {
                        self.out.extend_from_slice(message.0);
                        self.ends.push_back(End::Answered);
                    }
                    count = 0;
                    continue;
                }
                b'Q' => {
                    self.ends.push_back(End::Answered);
                    count = 0;
                }
                kind => {
                    if let Some(place) = request.get_mut(count) {
                        *place = kind;
                    }
                    count += 1;
                }
            }
            self.out.extend_from_slice(message.0);
        }
        match messages.0 {
            [] => Ok(()),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "a message was written in parts")),
        }
    }

    /// Gives the client the messages that have arrived.
    fn give(&mut self) {
        while let Some(message) = Messages(&self.raw).next() {
            let (kind, length) = (message.kind(), message.0.len());
            let bytes = self.raw.split_to(length);
            if kind == b'Z' {
                self.has_begun = true;
                self.ends.pop_front();
                self.given.extend_from_slice(&bytes);
                continue;
            }
            self.given.extend_from_slice(&bytes);
            if self.ends.front() != Some(&End::Merged) {
                continue;
            }
            match kind {
                // An execution has ended: with a completed command, an empty query, or a suspended
                // portal.
                b'C' | b'I' | b's' => {
                    self.ends.pop_front();
                    self.given.extend_from_slice(READY);
                }
                b'E' => {
                    while self.ends.front() == Some(&End::Merged) {
                        self.ends.pop_front();
                        self.given.extend_from_slice(FAILED);
                        self.given.extend_from_slice(IGNORED);
                    }
                }
                _ => {}
            }
        }
    }
}

/// A message.
struct Message<'a>(&'a [u8]);

impl Message<'_> {
    fn kind(&self) -> u8 {
        self.0.first().copied().unwrap_or_default()
    }
}

/// The whole messages at the beginning of some bytes.
struct Messages<'a>(&'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let header: [u8; HEADER] = self.0.get(..HEADER)?.try_into().ok()?;
        let [_, length @ ..] = header;
        let length = usize::try_from(u32::from_be_bytes(length)).ok()?.max(HEADER - 1) + 1;
        let (message, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(Message(message))
    }
}

impl<S: AsyncWrite + Unpin> Merged<S> {
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.out.is_empty() {
            match ready!(Pin::new(&mut self.inner).poll_write(context, &self.out))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.out.advance(written),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Merged<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_send(context))?;
        self.take(bytes)?;
        match self.poll_send(context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(bytes.len())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(context))?;
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(context))?;
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Merged<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.given.is_empty() {
            let held = this.raw.len();
            this.raw.resize(held + CHUNK, 0);
            let mut read = ReadBuf::new(&mut this.raw);
            read.advance(held);
            let polled = Pin::new(&mut this.inner).poll_read(context, &mut read);
            let filled = read.filled().len();
            this.raw.truncate(filled);
            ready!(polled)?;
            if filled == held {
                // The stream has ended: the remaining bytes are not a whole message.
                return Poll::Ready(Ok(()));
            }
            this.give();
        }
        let length = this.given.len().min(buffer.remaining());
        buffer.put_slice(&this.given.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl<S: TlsStream + Unpin> TlsStream for Merged<S> {
    fn channel_binding(&self) -> ChannelBinding {
        self.inner.channel_binding()
    }
}

/// Connects with another TLS connector, and merges the statements within the encrypted stream.
pub(super) struct OverTls<T>(pub T);

impl<T> MakeTlsConnect<Socket> for OverTls<T>
where
    T: MakeTlsConnect<Socket>,
    T::TlsConnect: Send + 'static,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    type Stream = Merged<T::Stream>;
    type TlsConnect = OverTls<T::TlsConnect>;
    type Error = T::Error;

    fn make_tls_connect(&mut self, domain: &str) -> Result<Self::TlsConnect, Self::Error> {
        self.0.make_tls_connect(domain).map(OverTls)
    }
}

impl<T> TlsConnect<Socket> for OverTls<T>
where
    T: TlsConnect<Socket> + Send + 'static,
    T::Future: Send,
{
    type Stream = Merged<T::Stream>;
    type Error = T::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Stream, Self::Error>> + Send>>;

    fn connect(self, stream: Socket) -> Self::Future {
        Box::pin(async move { self.0.connect(stream).await.map(Merged::new) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BIND: &[u8] = b"B\0\0\0\x06ab";
    const EXECUTE: &[u8] = b"E\0\0\0\x09\0\0\0\0\0";
    const SYNC: &[u8] = b"S\0\0\0\x04";
    const PARSE: &[u8] = b"P\0\0\0\x05x";
    const QUERY: &[u8] = b"Q\0\0\0\x05\0";
    const BOUND: &[u8] = b"2\0\0\0\x04";
    const COMPLETE: &[u8] = b"C\0\0\0\x06x\0";
    const WRONG: &[u8] = b"E\0\0\0\x05\0";
    const NOTICE: &[u8] = b"N\0\0\0\x05\0";

    fn statement() -> Vec<u8> {
        [BIND, EXECUTE, SYNC].concat()
    }

    fn begun() -> Merged<tokio::io::Empty> {
        let mut stream = Merged::new(tokio::io::empty());
        receive(&mut stream, READY);
        stream.given.clear();
        stream
    }

    /// The bytes for the server.
    fn send(stream: &mut Merged<tokio::io::Empty>, parts: &[&[u8]]) -> Vec<u8> {
        stream.take(&parts.concat()).expect("the messages are whole");
        stream.out.split().to_vec()
    }

    /// The bytes for the client.
    fn receive(stream: &mut Merged<tokio::io::Empty>, bytes: &[u8]) -> Vec<u8> {
        stream.raw.extend_from_slice(bytes);
        stream.give();
        stream.given.split().to_vec()
    }

    #[test]
    fn statements_of_one_write_share_a_sync() {
        let (mut stream, one) = (begun(), statement());
        let sent = send(&mut stream, &[QUERY, &one, &one, &one, QUERY]);
        let expected = [QUERY, BIND, EXECUTE, BIND, EXECUTE, BIND, EXECUTE, SYNC, QUERY].concat();
        assert_eq!(sent, expected);
        let all =
            [COMPLETE, READY, BOUND, COMPLETE, NOTICE, BOUND, COMPLETE, BOUND, COMPLETE, READY];
        let given = receive(&mut stream, &[&all.concat()[..], COMPLETE, READY].concat());
        let ready = [COMPLETE, READY].concat();
        let bound = [BOUND, &ready].concat();
        assert_eq!(given, [&ready[..], &bound, NOTICE, &bound, &bound, &ready].concat());
        assert!(stream.ends.is_empty());
    }

    #[test]
    fn other_requests_keep_their_sync() {
        let (mut stream, one) = (begun(), statement());
        let prepare = [PARSE, SYNC].concat();
        for parts in [
            [&one[..], &prepare, &one],
            [QUERY, &one, QUERY],
            [&prepare, &prepare, &one],
            [PARSE, &one, &one],
        ] {
            let sent = send(&mut stream, &parts);
            assert_eq!(sent, parts.concat());
        }
        let (mut stream, login) = (Merged::new(tokio::io::empty()), [&one[..], &one].concat());
        assert_eq!(send(&mut stream, &[&login]), login, "the client has not logged in");
    }

    #[test]
    fn an_error_is_that_of_its_statement_and_the_rest_is_ignored() {
        let (mut stream, one) = (begun(), statement());
        send(&mut stream, &[&one, &one, &one, &one, QUERY]);
        let answers = [BOUND, COMPLETE, WRONG, READY, WRONG, FAILED].concat();
        // The result does not depend on the chunks in which the bytes arrive.
        let mut given = Vec::new();
        for byte in answers.chunks(1) {
            given.extend(receive(&mut stream, byte));
        }
        let expected = [
            [BOUND, COMPLETE, READY].concat(),
            [WRONG, FAILED].concat(),
            [IGNORED, FAILED].concat(),
            // The server answers the last one's `Sync`.
            [IGNORED, READY].concat(),
            [WRONG, FAILED].concat(),
        ];
        assert_eq!(given, expected.concat());
        assert!(stream.ends.is_empty());
    }

    #[test]
    fn a_part_of_a_message_is_an_error() {
        let one = statement();
        for part in 1..one.len() {
            let left = one.split_at(part).0;
            let whole = [BIND.len(), BIND.len() + EXECUTE.len()].contains(&part);
            assert_eq!(begun().take(left).is_ok(), whole, "{part}");
        }
        let mut stream = Merged::new(tokio::io::empty());
        stream.take(b"S\0").expect("a login is passed on unchanged");
        assert_eq!(&stream.out[..], b"S\0");
    }

    #[test]
    fn the_own_messages_are_whole() {
        for own in [READY, FAILED, IGNORED] {
            let message = Messages(own).next().expect("it is a message");
            assert_eq!(message.0.len(), own.len());
        }
    }
}
