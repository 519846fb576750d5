// One attempt, and what the browser saw.

import { ask } from "./service.js";

// send resolves to what the browser saw. It never rejects: a lost response is an outcome too.
export async function send(key, order, mishaps) {
  const headers = { "Content-Type": "application/json", "Idempotency-Key": `"${key}"` };
  if (mishaps.length > 0) headers["Mishap"] = mishaps.join(", ");
  try {
    const path = order.card ? "/checkouts" : "/orders";
    const response = await ask(path, { method: "POST", headers, body: JSON.stringify(order) });
    const body = await response.json();
    return {
      outcome: String(response.status),
      replayed: response.headers.get("Idempotency-Replayed") === "true",
      detail: response.status === 202 ? "still in progress: retry" : response.ok ? `order ${body.id}` : body.title,
    };
  } catch {
    return { outcome: "no response", replayed: false, detail: "network error: was it ordered?" };
  }
}
