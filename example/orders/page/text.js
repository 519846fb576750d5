// Formatting.

export function euros(cents) {
  return `${(cents / 100).toFixed(2)} €`;
}

// abridged returns the first characters of a key and its length, as in 7f3c…(36), like display.Key
// of the server.
export function abridged(key) {
  const shown = Math.max(1, Math.min(4, Math.floor(key.length / 2)));
  return `${key.slice(0, shown)}…(${key.length})`;
}

// element creates an element with this text. Text from the server never becomes HTML.
export function element(name, className, text = "") {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.textContent = text;
  return made;
}
