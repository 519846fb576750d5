// Package fleet spreads tenants over several clusters of Postgres, and moves one from a cluster to another while it is used.
//
//	err := fleet.Install(ctx, cluster, tables)         // once, in every cluster
//	err := fleet.Place(ctx, cluster, "acme")           // a new tenant
//	report, err := fleet.Move(ctx, west, east, "acme", fleet.MoveConfig{Tables: tables})
//
// # What is a tenant's
//
// Every name begins with the tenant, as idem.Scope writes it: the scope of a key and of an operation, the key of an outgoing message,
// the consumer of an incoming one. Rows of the service's own tables name the tenant in a column. Their keys have to be unique
// in the whole fleet, so they come from no sequence of a cluster: [idem.ExecutionID] is such a key.
//
// # One home
//
// Each cluster says in fleet.tenants whether it is the home of a tenant. A trigger asks that table in the transaction that claims a
// key, handles a message or writes a row of the tenant's, under a shared lock of the tenant that is held until that transaction has ended. No
// program can forget to ask. In a cluster that is not the home the transaction fails, and [Away] says where the home is.
//
// # What is guaranteed of a move
//
//   - At most one cluster is the home at any moment. Which one is decided by one COMMIT of the old home, then one of the new.
//   - What was committed for the tenant is at the new home when that begins to answer: keys with their answers, operations with their
//     steps, messages of both sides, dead letters, and the rows of its own tables.
//   - A process that works on an operation at the old home is refused there, because the epoch has changed, and a Worker of the
//     new home goes on. A Call that was under way is what it is after a crash: made again, asked about, or parked, as its safety says.
//   - Messages of a key are first seen in their order. Those that a relay of the old home had in hand may be published twice,
//     under the same ID, as after a crash of the relay.
//   - A Move that is killed has moved the tenant or has not, except between the two commits: then the tenant has no home. Move
//     again, in each case, goes on.
package fleet
