package keyheader

// Attempt is the header field by which a client says that it sends a key again: the number of the attempt, in decimal
// digits, from 2 on. The first attempt has none. It is a hint: what a server answers does not depend on it, only which
// question it asks the database first.
const Attempt = "Idempotency-Attempt"
