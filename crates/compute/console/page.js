// The display of a server, by the unchanged noVNC beside this file.
//
// The URL has the token as upstream's pages expect it: within the query's `path`, or as `token`. The page
// connects again while the token is valid: a server that is shut off may start, and a host may return.
import RFB from "./core/rfb.js";

const AGAIN_MS = 3000;
// The cloud refuses the token or this page, or the session is over: another attempt would not help.
const REFUSED = 1008;

const shown = document.getElementById("status");
const screen = document.getElementById("screen");
let rfb = null;

function token() {
  const query = new URLSearchParams(location.search);
  const path = query.get("path") ?? "";
  const inner = path.includes("?") ? path.slice(path.indexOf("?") + 1) : "";
  return new URLSearchParams(inner).get("token") ?? query.get("token");
}

function address() {
  const url = new URL("../websockify", location.href);
  url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
  url.search = new URLSearchParams({ token: token() ?? "" });
  url.hash = "";
  return url;
}

function connect() {
  const socket = new WebSocket(address(), "binary");
  let end = null;
  socket.addEventListener("close", (event) => {
    end = event;
  });
  screen.replaceChildren();
  rfb = new RFB(screen, socket);
  rfb.scaleViewport = true;
  rfb.addEventListener("desktopname", (event) => {
    document.title = event.detail.name;
  });
  rfb.addEventListener("connect", () => {
    shown.textContent = "Connected";
    rfb.focus();
  });
  rfb.addEventListener("disconnect", () => {
    rfb = null;
    // The close event comes with the end of the connection, before or just after this one.
    setTimeout(() => ended(end), 0);
  });
  rfb.addEventListener("clipboard", (event) => {
    navigator.clipboard?.writeText(event.detail.text).catch(() => {});
  });
}

function ended(end) {
  const reason = end?.reason || "The connection ended.";
  if (end?.code === REFUSED) {
    shown.textContent = reason;
    return;
  }
  shown.textContent = `${reason} Connecting again …`;
  setTimeout(connect, AGAIN_MS);
}

document.getElementById("send-cad").addEventListener("click", () => rfb?.sendCtrlAltDel());
document.getElementById("paste").addEventListener("click", async () => {
  const text = await navigator.clipboard?.readText().catch(() => null);
  if (text) {
    rfb?.clipboardPasteFrom(text);
  }
  rfb?.focus();
});

connect();
