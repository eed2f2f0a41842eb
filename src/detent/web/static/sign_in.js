// The sign-in page: exchanges a token for a session, then opens the page that was requested. If another tab has
// signed in, takes the key from it and opens the page at once.

import { asProblem, call } from "./core/api.js";
import { requireElement } from "./core/dom.js";
import { findKey, hasKey, keepKey } from "./core/session.js";
import { urlFor } from "./core/urls.js";
import "./core/shell.js";

const form = requireElement("#sign-in");
const tokenInput = /** @type {HTMLInputElement} */ (requireElement("#token"));
const submitButton = /** @type {HTMLButtonElement} */ (requireElement("button", form));

tokenInput.focus();
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  submitButton.disabled = true;
  try {
    /** @type {{ session: string, session_key: string }} */
    const answer = await call("POST", "session", { json: { token: tokenInput.value.trim() } });
    keepKey(answer.session, answer.session_key);
    openRequestedPage();
  } catch (error) {
    requireElement("#sign-in-error").textContent = asProblem(error).message;
    tokenInput.setAttribute("aria-invalid", "true");
    tokenInput.select();
    submitButton.disabled = false;
  }
});

function openRequestedPage() {
  const next = urlFor(new URLSearchParams(location.search).get("next") ?? "");
  location.replace(next.startsWith(urlFor("")) ? next : urlFor(""));
}

if (!hasKey() && (await findKey())) openRequestedPage();
