// Page behaviour beyond HTML: times in the reader's time zone, scrolling to the open page's link, the end of the
// session, and streams that are closed while the page is hidden. Pages are readable without this file.
"use strict";

(() => {
  const shown = new Intl.DateTimeFormat(undefined, {dateStyle: "medium", timeStyle: "medium"});

  function localize(root) {
    for (const time of root.querySelectorAll("time:not([data-local])")) {
      const at = new Date(time.dateTime);
      if (isNaN(at)) continue;
      time.title = time.textContent;
      time.textContent = shown.format(at);
      time.dataset.local = "";
    }
  }

  // On a narrow screen the links to pages form one line. Only this line scrolls: the page keeps its position.
  function showOpenPage() {
    const open = document.querySelector(".bar nav [aria-current]");
    if (!open) return;
    const line = open.parentElement;
    const middle = (box) => box.left + box.width / 2;
    line.scrollLeft += middle(open.getBoundingClientRect()) - middle(line.getBoundingClientRect());
  }

  function notice(id, visible) {
    document.getElementById(id)?.toggleAttribute("hidden", !visible);
  }

  // The end of the session.
  const SOON = 300;
  const ends = Number(document.querySelector('meta[name="session-ends"]')?.content);

  function sessionOver() {
    notice("session-soon", false);
    notice("live-lost", false);
    notice("session-over", true);
  }

  function watchSession() {
    if (!ends) return;
    const left = ends - Date.now() / 1000;
    if (left <= 0) return sessionOver();
    notice("session-soon", left <= SOON);
    setTimeout(watchSession, Math.min(left <= SOON ? left : left - SOON, 86400) * 1000 + 500);
  }

  // A browser opens few connections to one site, and each open stream uses one. A hidden page closes its stream,
  // and is reloaded when it is shown.
  const RESTS_AFTER = 30000;
  const streams = new Set();
  let resting = null;
  let rested = false;

  htmx.createEventSource = (url) => {
    for (const old of streams) if (old.readyState === EventSource.CLOSED) streams.delete(old);
    const stream = new EventSource(url);
    streams.add(stream);
    return stream;
  };

  function rest() {
    rested = streams.size > 0;
    streams.forEach((stream) => stream.close());
  }

  // A browser may keep a page, with its streams, in its back/forward cache.
  addEventListener("pagehide", () => streams.forEach((stream) => stream.close()));
  addEventListener("pageshow", (event) => {
    if (event.persisted) location.reload();
  });

  document.addEventListener("visibilitychange", () => {
    clearTimeout(resting);
    if (document.hidden) {
      resting = setTimeout(rest, RESTS_AFTER);
    } else if (rested) {
      location.reload();
    }
  });

  document.addEventListener("htmx:sseOpen", () => notice("live-lost", false));
  document.addEventListener("htmx:sseError", () => { if (!rested) notice("live-lost", true); });
  document.addEventListener("htmx:sseClose", (event) => {
    if (event.detail.type === "message") sessionOver();
  });
  // A fragment that arrives while its page rereads the list would be replaced by an older one, and a fragment without a
  // target element belongs to a list that the page has not read yet. The page rereads the list instead.
  const PART = /<\w+ id="([^"]+)"[^>]* hx-swap-oob/g;
  document.addEventListener("htmx:sseBeforeMessage", (event) => {
    const list = event.target.parentElement.querySelector('[hx-trigger="sse:list"]');
    const placed = ([, id]) => document.getElementById(id);
    const reads = list.classList.contains("htmx-request");
    if (!reads && [...event.detail.data.matchAll(PART)].every(placed)) return;
    event.preventDefault();
    htmx.trigger(list, "sse:list");
  });
  // A page that could not be reread is out of date. It retries until a request succeeds.
  const RETRIES_AFTER = 2000;
  let retry = null;
  document.addEventListener("htmx:afterRequest", ({detail: {elt, xhr}}) => {
    const told = elt.getAttribute("hx-trigger");
    if (!told?.startsWith("sse:")) return;
    clearTimeout(retry);
    const failed = xhr.status === 0 || xhr.status >= 500;
    if (failed) retry = setTimeout(() => htmx.trigger(elt, told), RETRIES_AFTER);
    const open = [...streams].some((stream) => stream.readyState === EventSource.OPEN);
    if (failed || open) notice("live-lost", failed);
  });
  // A page that no longer exists, or that its reader may no longer see, is reloaded as a whole, which shows the error.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const {xhr, requestConfig} = event.detail;
    if (![403, 404].includes(xhr.status) || !requestConfig.elt.closest("[sse-connect]")) return;
    event.preventDefault();
    location.reload();
  });
  // The progress of an upload. The page of a refusal replaces the upload's page.
  const uploads = (elt) => elt.id === "upload";
  document.addEventListener("htmx:beforeSend", ({detail: {elt}}) => {
    if (!uploads(elt)) return;
    const bar = document.getElementById("upload-progress");
    delete bar.dataset.total;
    bar.value = 0;
    notice("upload-lost", false);
    notice("upload-progress", true);
  });
  document.addEventListener("htmx:xhr:progress", ({target, detail: {loaded, total}}) => {
    const bar = document.getElementById("upload-progress");
    if (!uploads(target) || !bar || total < bar.dataset.total) return;
    bar.dataset.total = total;
    bar.value = total ? 100 * loaded / total : 0;
  });
  // A browser that is still sending may lose the answer of a service that refuses the file. The script therefore asks
  // the service before an upload, and after an interrupted one, whether it would accept the file. True if it would.
  async function wouldTake(form) {
    const fields = new URLSearchParams();
    for (const name of ["csrf", "sum", "size"]) fields.set(name, form.elements[name].value);
    const headers = {"hx-request": "true", "hx-current-url": location.href};
    const answer = await fetch(form.action + "/trial", {method: "POST", body: fields, headers});
    if (answer.status === 204) return true;
    const login = answer.headers.get("hx-redirect");
    if (login) {
      location.assign(login);
      return false;
    }
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const image = page.getElementById("image");
    const here = document.getElementById("image");
    if (image) here.replaceWith(image);
    else here.replaceChildren(...page.getElementById("main").children);
    htmx.process(document.getElementById("main"));
    localize(document);
    return false;
  }
  function interrupted() {
    notice("upload-lost", true);
    notice("upload-progress", false);
  }
  document.addEventListener("htmx:confirm", (event) => {
    const {elt, issueRequest} = event.detail;
    const file = uploads(elt) && elt.elements.file.files[0];
    if (!file) return;
    event.preventDefault();
    elt.elements.size.value = file.size;
    notice("upload-lost", false);
    const button = elt.querySelector("button");
    button.disabled = true;
    wouldTake(elt).then((taken) => {
      button.disabled = false;
      if (taken) issueRequest(true);
    }, () => {
      button.disabled = false;
      interrupted();
    });
  });
  document.addEventListener("htmx:sendError", ({detail: {elt}}) => {
    if (!uploads(elt)) return;
    wouldTake(elt).then((taken) => { if (taken) interrupted(); }, interrupted);
  });
  document.addEventListener("htmx:beforeSwap", ({detail}) => {
    const {xhr, requestConfig: {elt}} = detail;
    if (xhr.status < 400 || !uploads(elt)) return;
    detail.shouldSwap = true;
    // A refusal without the image's page has only its own text.
    if (!xhr.responseText.includes('id="image"')) detail.selectOverride = "#main > *";
  });
  document.addEventListener("htmx:afterSettle", () => localize(document));
  document.addEventListener("htmx:oobAfterSwap", () => localize(document));

  matchMedia("(max-width: 40rem)").addEventListener("change", showOpenPage);

  localize(document);
  showOpenPage();
  watchSession();
})();
