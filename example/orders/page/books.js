// The books: the latest transactions of this tenant, read from the database twice a second.

import { showCharges } from "./bank.js";
import { read } from "./service.js";
import { showSteps } from "./steps.js";
import { element, euros } from "./text.js";

const pause = 500; // milliseconds

// watchBooks shows the books from now on, and counts the orders of the purchases. It returns look,
// which reads the books at once.
export function watchBooks(purchases) {
  let timer, looking = false, again = false;
  async function look() {
    again = true;
    if (looking) return;
    looking = true;
    clearTimeout(timer);
    while (again) {
      again = false;
      await showBooks(purchases);
    }
    looking = false;
    if (!document.hidden) timer = setTimeout(look, pause);
  }
  document.addEventListener("visibilitychange", look);
  look();
  return { look };
}

async function showBooks(purchases) {
  const purchase = purchases.at(-1);
  const [rows, busy] = await Promise.all([read("/books"), inProgress(purchase), showCharges(), showSteps(purchases)]);
  showState(rows ? "live" : "unavailable");
  if (!rows) return;
  for (const purchase of purchases) purchase.countOrders(rows);
  const lines = rows.map((row) => line(row, row.record?.key === purchase.abridgedKey));
  if (busy) lines.unshift(lineInProgress(purchase));
  replace(lines);
}

// inProgress reports whether an attempt of the purchase is being executed. The database shows no
// row of it yet, so inProgress asks the service. A purchase with steps has a row.
async function inProgress(purchase) {
  if (purchase.waiting === 0 || purchase.hasSteps) return false;
  const status = await read("/orders/status", { "Idempotency-Key": purchase.key });
  return status?.state === "processing";
}

let shown = ""; // unchanged rows are not replaced

function replace(lines) {
  const text = lines.map((line) => line.outerHTML).join("");
  if (text === shown) return;
  shown = text;
  document.querySelector("#books").replaceChildren(...lines);
}

function showState(state) {
  const place = document.querySelector("#books-state");
  if (place.textContent !== state) place.textContent = state;
}

function line({ order, record }, ours) {
  const running = record?.state === "running";
  const row = element("tr", running ? "in-progress" : ours ? "ours" : "");
  const what = element("td", "", order ? `${order.quantity} × ${order.sku}` : running ? "being ordered" : "no order");
  if (order) what.append(" ", element("span", "soft", euros(order.amount_cents)));
  if (order?.shipped) what.append(" ", element("span", "badge good shipped", `shipped: ${order.shipped}`));
  const answer = element("td", "", running ? "in progress" : record ? String(record.status) : "no record");
  if (record && !running) answer.append(" ", element("span", "soft", record.state));
  row.append(
    element("td", "", order ? String(order.id) : "–"),
    what,
    element("td", "xmin", transactions(order, record)),
    element("td", "code", record ? record.key : "–"),
    answer,
  );
  return row;
}

// transactions returns one number, unless order and record were written by different transactions.
function transactions(order, record) {
  return [...new Set([order?.xmin, record?.xmin])].filter(Boolean).join(" ≠ ");
}

function lineInProgress(purchase) {
  const row = element("tr", "in-progress");
  row.append(
    element("td", "", "–"),
    element("td", "", "being ordered"),
    element("td", "xmin", "–"),
    element("td", "code", purchase.abridgedKey),
    element("td", "", "in progress"),
  );
  return row;
}
