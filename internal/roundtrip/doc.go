// Package roundtrip sends several statements together and reads their answers together: one round trip.
//
// It works below pgx.Batch, which costs about as many allocations as everything else in a call, and keeps to the exec mode
// of the connection, so that what works behind the caller's connection pooler works here. Nothing that it sends or reads
// depends on the settings of the session.
package roundtrip
