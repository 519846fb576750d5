// The ledger of the bank, and the process of the service. Only `orders serve` has them.

import { ask, read } from "./service.js";
import { element, euros } from "./text.js";

// showCharges shows the latest charges and refusals of the bank.
export async function showCharges() {
  const entries = await read("/charges");
  if (!entries?.length) return;
  document.querySelector("#bank").hidden = false;
  document.querySelector("#charges").replaceChildren(...entries.slice(0, 6).map(line));
}

function line({ id, amount_cents, asked, declined }) {
  const row = element("tr");
  row.append(
    element("td", "code", id),
    element("td", "", euros(amount_cents)),
    element("td", "", asked === 1 ? "once" : `${asked} times`),
    element("td", "", declined ? "declined" : "once"),
  );
  return row;
}

// kill kills the process of the service, and reports when another process responds.
export async function kill(say) {
  say("killed");
  await ask("/kill", { method: "POST" }).catch(() => {});
  while (!(await read("/orders"))) await new Promise((resolve) => setTimeout(resolve, 200));
  say("another process runs");
}
