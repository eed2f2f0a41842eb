// The sign-in page: exchanges a token for a session cookie, then opens the page that was requested.

import { asProblem, call } from "./core/api.js";
import { requireElement } from "./core/dom.js";
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
    await call("POST", "session", { json: { token: tokenInput.value.trim() } });
    const next = urlFor(new URLSearchParams(location.search).get("next") ?? "");
    location.replace(next.startsWith(urlFor("")) ? next : urlFor(""));
  } catch (error) {
    requireElement("#sign-in-error").textContent = asProblem(error).message;
    tokenInput.setAttribute("aria-invalid", "true");
    tokenInput.select();
    submitButton.disabled = false;
  }
});
