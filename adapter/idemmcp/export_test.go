package idemmcp

// Decode is decode.
var Decode = decode

// Backoff is Client.backoff.
var Backoff = (*Client).backoff
