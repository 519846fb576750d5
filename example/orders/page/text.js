// How things are written.

export function euros(cents) {
  return `${(cents / 100).toFixed(2)} €`;
}

// abridged is as much of a key as may be seen by those who do not have it, and its length: 7f3c…(36). The server abridges alike.
export function abridged(key) {
  return `${key.length < 16 ? "" : key.slice(0, 4)}…(${key.length})`;
}

// element makes an element with text in it. Whatever the server sends is only ever text.
export function element(name, className, text = "") {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.textContent = text;
  return made;
}
