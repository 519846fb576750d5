package idemmcp

// Decode is decode.
var Decode = decode
