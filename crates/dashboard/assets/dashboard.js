// The behaviour of pages beyond HTML: times in the reader's zone, the end of the session, and streams that rest while
// nobody looks. Reading works without this file.
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

  // A browser has few connections to one site, and each open stream holds one. A hidden page gives its stream
  // back, and is read again when it is shown.
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

  // The page of a drain carries it on also while it is hidden, and then has its result. Read again, it would have neither.
  const drains = () => document.getElementById("drain-state") !== null;

  function rest() {
    if (drains()) {
      resting = setTimeout(rest, RESTS_AFTER);
      return;
    }
    rested = streams.size > 0;
    streams.forEach((stream) => stream.close());
  }

  // A browser may keep a page that was left, with its streams, to come back to it.
  addEventListener("pagehide", () => streams.forEach((stream) => stream.close()));
  addEventListener("pageshow", (event) => {
    if (!event.persisted) return;
    if (drains()) notice("live-lost", true);
    else location.reload();
  });

  document.addEventListener("visibilitychange", () => {
    clearTimeout(resting);
    if (document.hidden) {
      resting = setTimeout(rest, RESTS_AFTER);
    } else if (rested && !drains()) {
      location.reload();
    }
  });

  document.addEventListener("htmx:sseOpen", () => notice("live-lost", false));
  document.addEventListener("htmx:sseError", () => { if (!rested) notice("live-lost", true); });
  document.addEventListener("htmx:sseClose", (event) => {
    if (event.detail.type === "message") sessionOver();
  });
  // What a stream told to read again is gone: the whole page says so.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const {xhr, requestConfig} = event.detail;
    if (xhr.status !== 404 || !requestConfig.elt.closest("[sse-connect]")) return;
    event.preventDefault();
    location.reload();
  });
  // The form of a drain in progress asks again after an answer that failed. Other refusals are shown above the form.
  const AGAIN_AFTER = 3000;
  const repeats = ({elt, xhr}) => elt.matches("#drain form[hx-trigger]") && !(xhr.status >= 400 && xhr.status < 500);
  for (const failed of ["htmx:responseError", "htmx:sendError"]) {
    document.addEventListener(failed, ({detail}) => {
      if (!repeats(detail)) return;
      setTimeout(() => { if (detail.elt.isConnected) htmx.trigger(detail.elt, "submit"); }, AGAIN_AFTER);
    });
  }
  document.addEventListener("htmx:beforeSwap", ({detail}) => {
    const {xhr, requestConfig: {elt}} = detail;
    if (xhr.status < 400 || !elt.closest("#drain") || repeats({elt, xhr})) return;
    detail.shouldSwap = true;
    detail.selectOverride = "#main > *";
    detail.swapOverride = "afterbegin";
  });
  // The progress of an upload, whose refusal takes the place of its page.
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
  document.addEventListener("htmx:sendError", ({detail: {elt}}) => {
    if (!uploads(elt)) return;
    notice("upload-lost", true);
    notice("upload-progress", false);
  });
  document.addEventListener("htmx:beforeSwap", ({detail}) => {
    const {xhr, requestConfig: {elt}} = detail;
    if (xhr.status < 400 || !uploads(elt)) return;
    detail.shouldSwap = true;
    // A refusal that is no page of the image has only its own text.
    if (!xhr.responseText.includes('id="image"')) detail.selectOverride = "#main > *";
  });
  document.addEventListener("htmx:afterSettle", () => localize(document));
  document.addEventListener("htmx:oobAfterSwap", () => localize(document));

  localize(document);
  watchSession();
})();
