// The shop: what the buttons do. A purchase has its key before its first attempt, and keeps it until the next purchase
// begins. That is all that a client has to do.

import { send } from "./attempt.js";
import { kill } from "./bank.js";
import { watchBooks } from "./books.js";
import { Purchase } from "./purchase.js";
import { euros } from "./text.js";

const form = document.querySelector("#shop");
const log = document.querySelector("#purchases");
const retry = document.querySelector("#retry");
const purchases = [];

function begin() {
  const purchase = new Purchase();
  purchases.push(purchase);
  document.querySelector("#key").textContent = purchase.abridgedKey;
  retry.disabled = true;
}

// attempt sends the order as the form has it, under the key of the purchase.
async function attempt() {
  if (!form.reportValidity()) return;
  const purchase = purchases.at(-1), order = wanted();
  const answered = purchase.addAttempt(order);
  log.querySelector(".hint")?.remove();
  if (!purchase.element.isConnected) log.prepend(purchase.element);
  retry.disabled = false;
  const answer = send(purchase.key, order, mishaps());
  books.look();
  answered(await answer);
  books.look();
}

function wanted() {
  const quantity = form.quantity.valueAsNumber;
  const cents = Number(form.sku.selectedOptions[0].dataset.cents);
  const order = { sku: form.sku.value, quantity, amount_cents: quantity * cents, currency: "EUR" };
  return form.paid.value ? { ...order, card: card() } : order;
}

// card is what the bank takes for one. Its cards for trying things out say what it is to do.
function card() {
  if (form.paid.value === "card-declined") return form.paid.value;
  return form.bankLoses.checked ? "card-lost-answer" : form.bankSlow.checked ? "card-slow" : "card-good";
}

// mishaps are what is to go wrong. An answer is lost once, so that the retry shows what came of it.
function mishaps() {
  const wanted = [];
  if (form.lose.checked) wanted.push("lost-answer");
  if (form.slow.value) wanted.push(`slow=${form.slow.value}`);
  form.lose.checked = false;
  return wanted;
}

function showAmount() {
  form.amount.value = form.checkValidity() ? euros(wanted().amount_cents) : "";
}

// The bank does one thing at a time, and none if it is not asked.
function showBank({ target }) {
  for (const [one, other] of [[form.bankLoses, form.bankSlow], [form.bankSlow, form.bankLoses]]) {
    one.disabled = form.paid.value !== "card";
    if (target === one && one.checked) other.checked = false;
  }
}

const killButton = document.querySelector("#kill");

async function killService() {
  killButton.disabled = true;
  await kill((state) => { document.querySelector("#service-state").textContent = state; });
  killButton.disabled = false;
  books.look();
}

form.addEventListener("input", showAmount);
form.addEventListener("input", showBank);
killButton.addEventListener("click", killService);
form.addEventListener("submit", (event) => { event.preventDefault(); attempt(); });
document.querySelector("#twice").addEventListener("click", () => { attempt(); attempt(); });
retry.addEventListener("click", attempt);
document.querySelector("#fresh").addEventListener("click", begin);

begin();
showAmount();
const books = watchBooks(purchases);
