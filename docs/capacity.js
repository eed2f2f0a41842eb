// @ts-check
// The capacity calculator; the formulas are on the page.

const JOB_CPU_SECONDS = 11e-6;
const SERVER_CPU_SECONDS = 20e-6;
const JOB_BYTES = 950;

/** @param {string} id */
const number = (id) => Math.max(0, Number(/** @type {HTMLInputElement} */ (document.getElementById(id)).value) || 0);

/** @param {string} id @param {number} value */
function show(id, value) {
  const output = /** @type {HTMLOutputElement} */ (document.getElementById(id));
  output.value = value.toLocaleString(document.documentElement.lang, { maximumFractionDigits: 1 });
}

function calculate() {
  const rate = number("rate");
  const slots = Math.ceil(rate * number("seconds") * 1.25);
  const busy = (rate * (number("cpu") + JOB_CPU_SECONDS)) / 0.7;
  const workers = Math.max(1, Math.ceil(busy), Math.ceil(slots / 64));
  show("slots", slots);
  show("workers", workers);
  show("connections", workers * 14);
  show("cores", Math.max(1, Math.ceil((rate * SERVER_CPU_SECONDS) / 0.5)));
  show("disk", (number("daily") * number("days") * (JOB_BYTES + number("payload")) * 1.3) / 1e9);
}

const form = document.querySelector("[data-capacity]");
form?.addEventListener("input", calculate);
if (form) calculate();
