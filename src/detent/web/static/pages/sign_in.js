// Trade a token for a session, and go where one wanted to go.
import { $, here } from "../core/dom.js";
import { call } from "../core/api.js";
import "../core/shell.js";

$("token").focus();
$("sign-in").addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = event.target.querySelector("button"), token = $("token");
  button.disabled = true;
  try {
    await call("POST", "session", { json: { token: token.value.trim() } });
    const next = new URL(here(new URLSearchParams(location.search).get("next") ?? ""));
    location.replace(next.href.startsWith(here("")) ? next.href : here(""));
  } catch (error) {
    $("trouble").textContent = error.message;
    token.setAttribute("aria-invalid", "true");
    token.select();
    button.disabled = false;
  }
});
