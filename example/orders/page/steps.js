// The recorded steps of purchases by card, read from the service.

import { read } from "./service.js";
import { element } from "./text.js";

// showSteps reads the steps of each purchase until the purchase has ended. A client that has the
// key may read its outcome.
export async function showSteps(purchases) {
  await Promise.all(purchases.filter((purchase) => purchase.hasSteps).map(async (purchase) => {
    const status = await read("/orders/status", { "Idempotency-Key": purchase.key });
    if (!status?.execution_id) return;
    const operation = await read(`/checkouts/${status.execution_id}`);
    if (operation) purchase.showSteps(operation);
    if (status.state !== "processing") purchase.hasSteps = purchase.waiting > 0;
  }));
}

// describeSteps returns a badge for each step that has ended or was undone, and for the step in
// progress. An undo has the name of its step.
export function describeSteps({ state, step, steps }) {
  const ended = steps.filter((s) => s.outcome !== "begun");
  const said = ended.map((s) => badge(s.name, s.kind === "undo" ? "undone" : s.outcome));
  if (state === "running" && step) said.push(badge(step, "in progress"));
  if (state === "parked") said.push(badge(step, "parked"));
  return said.flatMap((one, i) => (i === 0 ? [one] : [" ", one]));
}

const kinds = { "done": "good", "failed": "refused", "undone": "replayed", "in progress": "waiting", "parked": "lost" };

function badge(name, outcome) {
  return element("span", `badge ${kinds[outcome] ?? "waiting"}`, `${name}: ${outcome}`);
}
