//! A browser: a websocket, and enough of RFB to prove that a guest is at the other end.

use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

pub struct Browser {
    socket: WebSocketStream<TcpStream>,
    /// Bytes that were received but not read yet.
    received: Vec<u8>,
    /// The subprotocol that the server chose.
    pub protocol: Option<String>,
}

impl Browser {
    pub async fn connect(port: u16, path: &str, headers: &[(&'static str, &str)]) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("the server listens");
        let url = format!("ws://127.0.0.1:{port}{path}");
        let mut request = url.into_client_request().expect("the request is valid");
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().expect("the value is valid"));
        }
        let shaken = tokio_tungstenite::client_async(request, stream).await;
        let (socket, answer) = shaken.expect("the handshake succeeds");
        let protocol = answer.headers().get("sec-websocket-protocol");
        let protocol = protocol.map(|name| name.to_str().expect("it is text").to_owned());
        Self { socket, received: Vec::new(), protocol }
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        self.socket.send(Message::Binary(bytes.to_vec().into())).await.expect("it is sent");
    }

    pub async fn send_text(&mut self, text: &str) {
        self.socket.send(Message::Text(text.into())).await.expect("it is sent");
    }

    /// The next bytes; panics if the server closes the console first.
    pub async fn read(&mut self, length: usize) -> Vec<u8> {
        while self.received.len() < length {
            match self.socket.next().await {
                Some(Ok(Message::Binary(bytes))) => self.received.extend_from_slice(&bytes),
                Some(Ok(Message::Text(text))) => self.received.extend_from_slice(text.as_bytes()),
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                other => panic!("the console ended: {other:?}"),
            }
        }
        let rest = self.received.split_off(length);
        std::mem::replace(&mut self.received, rest)
    }

    /// Code and reason with which the server closes the console.
    pub async fn closed(mut self) -> (u16, String) {
        loop {
            match self.socket.next().await {
                Some(Ok(Message::Close(Some(CloseFrame { code, reason })))) => {
                    return (code.into(), reason.to_string());
                }
                Some(Ok(_)) => {}
                other => panic!("the console ended without a reason: {other:?}"),
            }
        }
    }

    /// Closes the console as a page does when its user closes it.
    pub async fn leave(mut self) {
        self.socket.close(None).await.expect("it is sent");
        while let Some(Ok(_)) = self.socket.next().await {}
    }

    /// The handshake of RFB; returns the name of the display.
    pub async fn rfb(&mut self) -> String {
        assert_eq!(self.read(12).await, b"RFB 003.008\n");
        self.send(b"RFB 003.008\n").await;
        assert_eq!(self.read(2).await, [1, 1]);
        self.send(&[1]).await;
        assert_eq!(self.read(4).await, [0; 4]);
        self.send(&[1]).await;
        let head = self.read(24).await;
        let length = usize::from(head[23]);
        String::from_utf8(self.read(length).await).expect("the name is text")
    }
}
