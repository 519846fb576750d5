// Package idemotel shows the calls of package idem by OpenTelemetry: metrics and spans of how each ends, and gauges of
// what is in the database.
//
//	observer, err := idemotel.New()
//	…
//	res, err := idem.Do(ctx, pool, scope, key, hash, fn, idem.WithName("place-order"), idem.WithObserver(observer))
//
//	gauges, err := idemotel.Watch(pool) // until gauges.Stop()
//
// It needs the API of OpenTelemetry alone. Where the figures go is for the providers to say, which are the global ones unless
// WithMeterProvider and WithTracerProvider give others.
//
// # What is told of a call
//
// Scope, key and request are never part of a label or of an attribute, nor is the text of an error. The labels are of closed
// sets: the name that the program gives by idem.WithName, what kind of call it is, its outcome, and the cause of an error. Of
// names, the first hundred are told apart; what comes after them is "_OTHER".
//
//	idem.call.duration      s          histogram   idem.name, idem.kind, idem.outcome, error.type
//	idem.wait.duration      s          histogram   of calls that waited for another one: idem.name, idem.outcome
//	idem.replay.age         s          histogram   how long before its replay the key was used first: idem.name
//	idem.retries            {retry}    counter     runs after the first: idem.name, error.type
//	idem.commit.unknown     {commit}   counter     not acknowledged: idem.name, idem.resolution (committed, rolled_back, unresolved)
//	idem.replay.unreadable  {replay}   counter     refused because the recorded response cannot be read: idem.name
//	idem.step.duration      s          histogram   of operations, each attempt by itself: idem.name, idem.step, idem.step.kind (tx, call, undo),
//	                                               idem.outcome (done, failed, unknown), error.type
//
// # What is told of messages
//
// The same observer is for outbox.RelayConfig and for inbox.WithObserver. Topics, ids and keys are never part of a label; the name of a
// consumer, which the program gives, is.
//
//	idem.outbox.messages          {message}  counter     idem.outcome (published, failed)
//	idem.outbox.publish.duration  s          histogram   of calls of the publisher: idem.outcome (failed if one was not published)
//	idem.inbox.messages           {message}  counter     idem.consumer, idem.outcome (done, duplicate, retry, dead)
//	idem.inbox.hindered           {attempt}  counter     that something else has hindered, and that do not count: idem.consumer
//	idem.inbox.paused             {message}  counter     put off while a consumer pauses, because it has failed with many in a row: idem.consumer
//	idem.inbox.handle.duration    s          histogram   of calls, of one message or of many: idem.consumer, error.type
//
// # Spans
//
// The span of a call is called "idem" and its name. It has children, claim, wait, fn, commit (record in a DoTx) and resolve, one
// after the other. It carries the execution id, which is in the record and, through idem.ExecutionID, wherever fn has written
// it. A replay is linked to the execution whose response it was given: by its execution id, and to its span if this process
// has executed it of late. The spans that fn makes are not children of these: fn has the context of its caller.
//
// Each step that an operation takes, and each attempt at one, has a span that is called "idem" and its kind: idem tx, idem call,
// idem undo. It has the labels of idem.step.duration and the operation id, and is a child of the call's, or of whatever the context of a
// Worker holds.
//
// Each run of a handler of package inbox has a span that is called "idem handle", with the consumer. It is linked to the spans in which its messages
// were added, if outbox.Add was given a context of outbox.WithCarrier. If there is no span in the context of the call, that of a single
// message is its parent.
//
// # What is told of the database
//
// The gauges are read from the catalog, the statistics and the locks, and from the operations and messages that are not over, never from the
// records: see WithEvery for how often.
// What the role of the pool may not see is left out.
//
//	idem.records                   {record}        idem.record.state: live, expired; unknown if expiry cannot be seen
//	idem.records.expired.age       s               for how long the oldest expired record has been expired
//	idem.rows.live                 {row}           idem.table: each of the schema
//	idem.rows.dead                 {row}           idem.table; not vacuumed yet
//	idem.storage.size              By              idem.table; idem.part: heap, index, other
//	idem.transactions              {transaction}   that have claimed a key and are not over
//	idem.transactions.age          s               of the oldest of them
//	idem.keys.held                 {key}           by them
//	idem.purge.lag                 s               idem.table; since the last whole sweep of it began; before the first, since that began, and for records the
//	                                               age of the oldest expired one
//	idem.purge.deleted             {row}           counter; idem.table
//	idem.purge.speed               {record}/s      of the sweep under way, or of the last one
//	idem.purge.waiting             {sweep}         sweeps that wait: idem.purge.reason
//	idem.operations                {operation}     not over: idem.operation.state (running, parked)
//	idem.operations.parked.age     s               since the earliest step was begun at which one is parked
//	idem.operations.late           s               for how long one has been due that no process works on
//	idem.outbox.waiting            {message}       to be published
//	idem.outbox.delayed            {message}       not to be published yet: in no other figure until they are due
//	idem.outbox.held               {message}       held back, because they or one before them could not be published
//	idem.outbox.oldest.age         s               of the oldest one that is not published
//	idem.dead_letters              {message}       that wait for a person: idem.side (outbox, inbox)
//	idem.acts                      {act}           of people in the last day, from idem.audit: idem.act (evict, retry, cancel, resolve, redrive, drop, forget)
//	idem.inbox.failing.age         s               for how long a consumer has tried a message in vain
//	db.client.connection.count     {connection}    of the pool: db.client.connection.state (idle, used), db.client.connection.pool.name
//	db.client.connection.max       {connection}
//	db.client.connection.timeouts  {timeout}       counter: a caller gave up waiting for a connection
//	idem.pool.waits                {wait}          counter: a caller had to wait for one
//
// Every process that watches shows the same figures of the database: take the maximum over them, not the sum. Those of the pool
// are each process's own.
package idemotel
