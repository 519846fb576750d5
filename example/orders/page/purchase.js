// A purchase: one key, the attempts with this key, and the steps of a purchase by card.

import { describeSteps } from "./steps.js";
import { abridged, element, euros } from "./text.js";

export class Purchase {
  key = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  abridgedKey = abridged(this.key);
  waiting = 0; // attempts without a response
  hasSteps = false; // the purchase has steps that may still change
  element = element("article", "card purchase");
  #sum = element("p", "sum");
  #list = element("ol", "attempts");
  #steps = element("p", "steps");
  #orders = 0;

  constructor() {
    const heading = element("h3", "", "Key ");
    heading.append(element("code", "", this.abridgedKey));
    this.element.append(heading, this.#sum, this.#list, this.#steps);
  }

  // addAttempt returns a function that shows the outcome of the attempt.
  addAttempt(order) {
    const line = element("li"), outcome = element("span", "seen");
    outcome.append(element("span", "badge waiting", "waiting"));
    line.append(element("span", "sent", `${order.quantity} × ${order.sku}, ${euros(order.amount_cents)}`), " ", outcome);
    this.#list.append(line);
    this.waiting++;
    if (order.card) this.hasSteps = true;
    this.#showSum();
    return (seen) => {
      this.waiting--;
      outcome.replaceChildren(...describe(seen));
    };
  }

  // countOrders counts the orders of this purchase in the books. The books have only the latest
  // orders.
  countOrders(rows) {
    const found = rows.filter((row) => row.order && row.record?.key === this.abridgedKey).length;
    if (found > 0) this.#orders = found;
    this.#showSum();
  }

  // showSteps shows the steps of the operation.
  showSteps(operation) {
    const line = element("p", "steps");
    line.append(...describeSteps(operation));
    if (line.innerHTML !== this.#steps.innerHTML) this.#steps.replaceChildren(...line.childNodes);
  }

  #showSum() {
    const sum = `${count(this.#list.childElementCount, "attempt")} → ${count(this.#orders, "order")}`;
    if (this.#sum.textContent !== sum) this.#sum.textContent = sum; // a screen reader announces every change in a log
  }
}

function count(n, what) {
  return `${n} ${what}${n === 1 ? "" : "s"}`;
}

function describe({ outcome, replayed, detail }) {
  const kind = outcome === "no response" ? "lost" : outcome < "300" ? "good" : "refused";
  const badges = [element("span", `badge ${kind}`, outcome)];
  if (replayed) badges.push(" ", element("span", "badge replayed", "replayed"));
  return [...badges, " ", element("span", "detail", detail)];
}
