// The shop: what the buttons do. A client creates the key of a purchase before the first attempt,
// and sends the same key with every attempt. It has to do nothing else.

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

// attempt sends the order of the form with the key of the purchase.
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

// card returns a test card of the bank. The bank behaves as the name of the card says.
function card() {
  if (form.paid.value === "card-declined") return form.paid.value;
  return form.bankLoses.checked ? "card-lost-answer" : form.bankSlow.checked ? "card-slow" : "card-good";
}

// mishaps returns the faults of the attempt. A response is lost once, so that the retry shows what
// happened.
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

// showBank enables the faults of the bank for payments by card, at most one at a time.
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
