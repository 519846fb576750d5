// The service, as this tenant reaches it. A page of yours has a session instead of a credential that all can read.

const credential = "Bearer acme-key";

export function ask(path, { headers = {}, ...options } = {}) {
  return fetch(path, { ...options, headers: { ...headers, "Authorization": credential } });
}

// read resolves to a document, or to nothing if there is none, or the service cannot be reached.
export async function read(path, headers) {
  try {
    const response = await ask(path, { headers });
    return response.ok ? await response.json() : undefined;
  } catch {
    return undefined;
  }
}
