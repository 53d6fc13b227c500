// Live results: a form with data-live asks again while somebody types, and shows only what changed.
// Without this script the same form works by its button.
"use strict";

const WAIT_MS = 250;

function live(form) {
  const id = form.dataset.live;
  let timer = 0;
  let asking = null;

  async function ask() {
    if (asking) asking.abort();
    asking = new AbortController();
    const given = [...new FormData(form)].filter(([, value]) => value !== "");
    const address = `${form.getAttribute("action")}?${new URLSearchParams(given)}`;
    const place = document.getElementById(id);
    place.setAttribute("aria-busy", "true");
    try {
      const answer = await fetch(address, { signal: asking.signal, credentials: "same-origin" });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const found = page.getElementById(id) || page.querySelector(".notice");
      place.replaceChildren(...(found.id === id ? found.childNodes : [found]));
      const heading = place.querySelector("h2");
      document.getElementById("said").textContent = heading ? heading.textContent : "";
      history.replaceState(null, "", address);
    } catch (error) {
      if (error.name === "AbortError") return;
      const line = document.createElement("p");
      line.className = "notice bad";
      line.setAttribute("role", "alert");
      line.textContent = "The inspector does not answer: has it ended?";
      place.replaceChildren(line);
    }
    place.removeAttribute("aria-busy");
  }

  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(ask, WAIT_MS);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(timer);
    ask();
  });
}

document.querySelectorAll("form[data-live]").forEach(live);
