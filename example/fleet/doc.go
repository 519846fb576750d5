// Package fleet spreads tenants over several Postgres clusters, and moves a tenant from one cluster
// to another while the tenant is in use.
//
//	err := fleet.Install(ctx, cluster, tables)         // once, in every cluster
//	err := fleet.Place(ctx, cluster, "acme")           // a new tenant
//	report, err := fleet.Move(ctx, west, east, "acme", fleet.MoveConfig{Tables: tables})
//
// # Which rows belong to a tenant
//
// These names must begin with the name of the tenant, as idem.Scope writes it: the scope of a key
// or operation, the key of an outbox message, and the consumer of an inbox message. The tables of
// the service have a column with the name of the tenant. Their primary keys must be unique in the
// whole fleet, so no sequence of a cluster can generate them. [idem.ExecutionID] is a suitable key.
//
// # One home
//
// The table fleet.tenants in each cluster says whether the cluster is the home of a tenant. A
// trigger reads that table in every transaction that claims a key, handles a message, or writes a
// row of the tenant. The trigger also takes a shared lock of the tenant until the transaction ends.
// No program can bypass the check, because the database makes it. In a cluster that is not the
// home, the transaction fails. [Away] returns the home from the error of the transaction.
//
// # What a move guarantees
//
//   - At most one cluster is the home at any time. One COMMIT in the old home, followed by one
//     COMMIT in the new home, decides which.
//   - Before the new home starts to answer, it has everything that was committed for the tenant:
//     keys with their answers, operations with their steps, outbox and inbox messages, dead
//     letters, and the rows of the service's own tables.
//   - A process that runs an operation in the old home is refused, because the epoch of the
//     operation has changed. A Worker in the new home resumes the operation. If a Call to another
//     system was in progress, package operation does the same as after a crash: it repeats the
//     call, asks the other system for the outcome, or parks the operation, as the policy of the
//     Call says.
//   - The messages of a key are published in order, apart from repetitions. If a relay of the old
//     home was publishing a message, the message may be published again with the same ID, as after
//     a crash of the relay.
//   - A killed Move has either moved the tenant or not, with one exception: between the two commits
//     the tenant has no home. In every case another Move with the same arguments completes the
//     move.
package fleet
