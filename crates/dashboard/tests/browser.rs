//! A headless browser: it keeps cookies, follows redirects and fills in forms.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use tower::ServiceExt;

use crate::cloud::{Cloud, PASSWORD};

pub struct Browser {
    /// The controllers that a load balancer selects in turn.
    routers: Vec<Router>,
    next: usize,
    pub cookies: BTreeMap<String, String>,
    /// True while requests are sent as by a page's script.
    pub script: bool,
}

/// A page as a browser shows it.
#[derive(Debug)]
pub struct Page {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub at: String,
    pub html: String,
}

impl Page {
    /// Fails unless the page has this text.
    pub fn shows(&self, text: &str) -> &Self {
        assert!(self.html.contains(text), "{} lacks {text}: {}", self.at, self.html);
        self
    }

    /// Fails if the page has this text.
    pub fn hides(&self, text: &str) -> &Self {
        assert!(!self.html.contains(text), "{} has {text}: {}", self.at, self.html);
        self
    }

    /// Fails unless the page has this status.
    pub fn has_status(&self, status: u16) -> &Self {
        assert_eq!(self.status.as_u16(), status, "{}: {}", self.at, self.html);
        self
    }

    /// The value of the first hidden field of this name.
    pub fn hidden(&self, name: &str) -> String {
        let start = format!("<input type=\"hidden\" name=\"{name}\" value=\"");
        let at = self.html.find(&start).unwrap_or_else(|| panic!("no {name}: {}", self.html));
        let rest = &self.html[at + start.len()..];
        rest[..rest.find('"').unwrap()].to_owned()
    }
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

impl Browser {
    /// A browser whose requests two controllers serve in turn.
    pub fn new(cloud: &Cloud) -> Self {
        Self {
            routers: cloud.controllers.to_vec(),
            next: 0,
            cookies: BTreeMap::new(),
            script: false,
        }
    }

    /// A browser in which a user has logged in.
    pub async fn of(cloud: &Cloud, user: &str, project: &str) -> Self {
        let mut browser = Self::new(cloud);
        let page = browser.log_in(user, PASSWORD, project).await;
        page.has_status(200).shows("<h1>Servers</h1>");
        browser
    }

    pub async fn log_in(&mut self, user: &str, password: &str, project: &str) -> Page {
        let page = self.get("/dashboard/login").await;
        let csrf = page.hidden("csrf");
        let fields =
            [("csrf", &*csrf), ("user", user), ("password", password), ("project", project)];
        self.post("/dashboard/login", &fields).await
    }

    pub async fn get(&mut self, path: &str) -> Page {
        self.follow(Method::GET, path, None).await
    }

    pub async fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Page {
        let pairs = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value)));
        self.follow(Method::POST, path, Some(pairs.collect::<Vec<_>>().join("&"))).await
    }

    /// Submits a form with the page's CSRF token.
    pub async fn submit(&mut self, page: &Page, path: &str, fields: &[(&str, &str)]) -> Page {
        let csrf = page.hidden("csrf");
        let mut all = vec![("csrf", &*csrf)];
        all.extend(fields);
        self.post(path, &all).await
    }

    /// Uploads a file with the form of a page. Unless it `ends`, the upload is cut off, as by a closed tab.
    pub async fn upload(
        &mut self,
        page: &Page,
        path: &str,
        sum: &str,
        data: Vec<u8>,
        ends: bool,
    ) -> Page {
        let mut body = Vec::new();
        let csrf = page.hidden("csrf");
        for (name, value) in [("csrf", &*csrf), ("sum", sum)] {
            let part = format!(
                "--xyz\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
            );
            body.extend(part.into_bytes());
        }
        body.extend(
            b"--xyz\r\nContent-Disposition: form-data; name=\"file\"; filename=\"disk.raw\"\r\n\
              Content-Type: application/octet-stream\r\n\r\n",
        );
        body.extend(data);
        if ends {
            body.extend(b"\r\n--xyz--\r\n");
        }
        let sent = futures_util::stream::iter(
            body.chunks(10_000)
                .map(|part| Ok::<_, std::io::Error>(part.to_vec()))
                .collect::<Vec<_>>(),
        );
        let answer = self
            .send(Method::POST, path, "multipart/form-data; boundary=xyz", Body::from_stream(sent))
            .await;
        let mut page = Self::read(path, answer).await;
        while page.status.is_redirection() {
            let to = page.headers[header::LOCATION].to_str().unwrap().to_owned();
            page = self.once(Method::GET, &to, None).await;
        }
        page
    }

    /// One request; redirects are not followed.
    pub async fn once(&mut self, method: Method, path: &str, form: Option<String>) -> Page {
        let answer = self.answer(method, path, form).await;
        Self::read(path, answer).await
    }

    async fn read(path: &str, answer: axum::response::Response) -> Page {
        let (status, headers) = (answer.status(), answer.headers().clone());
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let html = String::from_utf8_lossy(&body).into_owned();
        Page { status, headers, at: path.to_owned(), html }
    }

    async fn answer(
        &mut self,
        method: Method,
        path: &str,
        form: Option<String>,
    ) -> axum::response::Response {
        let media = if form.is_some() { "application/x-www-form-urlencoded" } else { "" };
        self.send(method, path, media, form.map_or_else(Body::empty, Body::from)).await
    }

    async fn send(
        &mut self,
        method: Method,
        path: &str,
        media: &str,
        body: Body,
    ) -> axum::response::Response {
        let router = self.routers[self.next % self.routers.len()].clone();
        self.next += 1;
        let cookies = self.cookies.iter().map(|(name, value)| format!("{name}={value}"));
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "cloud.example")
            .header(header::ACCEPT, "text/html")
            .header(header::COOKIE, cookies.collect::<Vec<_>>().join("; "));
        if !media.is_empty() {
            request =
                request.header(header::CONTENT_TYPE, media).header("sec-fetch-site", "same-origin");
        }
        if self.script {
            request = request.header("hx-request", "true");
        }
        let request = request.body(body).unwrap();
        let answer = router.oneshot(request).await.unwrap();
        for line in answer.headers().get_all(header::SET_COOKIE) {
            let line = line.to_str().unwrap();
            assert!(line.contains("; HttpOnly; SameSite=Strict"), "{line}");
            let (name, value) = line.split(';').next().unwrap().split_once('=').unwrap();
            if line.contains("Max-Age=0") {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        answer
    }

    async fn follow(&mut self, method: Method, path: &str, form: Option<String>) -> Page {
        let mut page = self.once(method, path, form).await;
        while page.status.is_redirection() {
            let to = page.headers[header::LOCATION].to_str().unwrap().to_owned();
            page = self.once(Method::GET, &to, None).await;
        }
        if !page.at.contains("/assets/") {
            let policy = page.headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
            assert!(
                policy.contains("default-src 'none'") && !policy.contains("unsafe"),
                "{policy}"
            );
            assert_eq!(page.headers[header::CACHE_CONTROL], "no-store");
            for inline in ["<script>", "style=\"", "onclick=", "javascript:"] {
                page.hides(inline);
            }
        }
        page
    }

    /// Opens a stream of events.
    pub async fn stream(&mut self, path: &str) -> Stream {
        let answer = self.answer(Method::GET, path, None).await;
        assert_eq!(answer.status(), 200, "{path}");
        assert_eq!(answer.headers()[header::CONTENT_TYPE], "text/event-stream");
        Stream { body: answer.into_body(), text: String::new() }
    }
}

/// A stream of server-sent events.
pub struct Stream {
    body: Body,
    text: String,
}

impl Stream {
    /// The next event with its data; `None` at the end.
    pub async fn next(&mut self) -> Option<(String, String)> {
        let wait = tokio::time::timeout(Duration::from_secs(30), self.read());
        wait.await.expect("an event arrives")
    }

    async fn read(&mut self) -> Option<(String, String)> {
        loop {
            while let Some(end) = self.text.find("\n\n") {
                let event: String = self.text.drain(..end + 2).collect();
                let field = |name: &str| {
                    let lines = event.lines().filter_map(|line| line.strip_prefix(name));
                    lines.collect::<Vec<_>>().join("\n").trim().to_owned()
                };
                if event.contains("event:") {
                    return Some((field("event:"), field("data:")));
                }
            }
            match self.body.frame().await? {
                Ok(frame) => {
                    let data = frame.into_data().unwrap_or_default();
                    self.text.push_str(str::from_utf8(&data).unwrap());
                }
                Err(error) => panic!("the stream failed: {error}"),
            }
        }
    }

    /// Waits for an event of this kind whose data contains the text.
    pub async fn until(&mut self, kind: &str, text: &str) -> String {
        loop {
            let (found, data) =
                self.next().await.unwrap_or_else(|| panic!("no {kind} with {text}"));
            if found == kind && data.contains(text) {
                return data;
            }
        }
    }
}
