// Package idemotel reports calls of package idem to OpenTelemetry, as metrics and spans, and
// exports gauges of the database.
//
//	observer, err := idemotel.New()
//	…
//	res, err := idem.Do(ctx, pool, scope, key, hash, fn,
//		idem.WithName("place-order"), idem.WithObserver(observer))
//
//	gauges, err := idemotel.Watch(pool) // until gauges.Stop()
//
// The package depends on the API of OpenTelemetry only. Providers decide where metrics and spans
// go. The global providers are the default; WithMeterProvider and WithTracerProvider set others.
//
// # Metrics of calls
//
// No label and no attribute contains a scope, a key, a request or the text of an error. All labels
// have closed sets of values: the name that the program sets with idem.WithName, the kind of the
// call, its outcome, and the cause of its error. The first hundred names have label values of their
// own. Later names share the value "_OTHER".
//
//	idem.call.duration      s         histogram of all calls:
//	                                  idem.name, idem.kind, idem.outcome, error.type
//	idem.wait.duration      s         histogram of the time that calls waited for another call with
//	                                  their key: idem.name, idem.outcome
//	idem.replay.age         s         histogram of the time from the first use of a key to a replay:
//	                                  idem.name
//	idem.retries            {retry}   counter of runs after the first: idem.name, error.type
//	idem.commit.unknown     {commit}  counter of COMMITs that were not acknowledged:
//	                                  idem.name,
//	                                  idem.resolution (committed, rolled_back, unresolved)
//	idem.replay.unreadable  {replay}  counter of replays that failed because the recorded response
//	                                  cannot be read: idem.name
//	idem.step.duration      s         histogram of attempts at steps of operations:
//	                                  idem.name, idem.step, idem.step.kind (tx, call, undo),
//	                                  idem.outcome (done, failed, unknown), error.type
//
// # Metrics of messages
//
// The same observer works in outbox.RelayConfig and inbox.WithObserver. No label contains a topic,
// an ID or a key. The name of a consumer, which the program sets, is a label.
//
//	idem.outbox.messages          {message}  counter: idem.outcome (published, failed, or away for
//	                                         messages that are published again after an error)
//	idem.outbox.publish.duration  s          histogram of calls of the publisher:
//	                                         idem.outcome (failed if a message was not published)
//	idem.inbox.messages           {message}  counter: idem.consumer,
//	                                         idem.outcome (done, duplicate, retry, dead)
//	idem.inbox.hindered           {attempt}  counter of failed attempts that do not count, because
//	                                         the message was not the cause: idem.consumer
//	idem.inbox.paused             {message}  counter of messages that a paused consumer postponed
//	                                         after many failures in a row: idem.consumer
//	idem.inbox.handle.duration    s          histogram of calls of a consumer, for one or many
//	                                         messages:
//	                                         idem.consumer, error.type
//
// The durations are also exported under the names of OpenTelemetry's semantic conventions, for
// dashboards that use these names. The value of messaging.system is "idem", because an observer
// does not know the broker.
//
//	messaging.client.operation.duration  s  histogram of calls of the publisher: messaging.system,
//	                                        messaging.operation.name, error.type
//	messaging.process.duration           s  histogram of calls of a consumer: messaging.system,
//	                                        messaging.operation.name,
//	                                        messaging.consumer.group.name, error.type
//
// # Spans
//
// The span of a call has the name "idem" plus the name of the call. Its children are the stages of
// the call, one after the other: claim, wait, fn, commit (record in a DoTx) and resolve. The span
// has the execution ID as an attribute. The record has the same ID, and idem.ExecutionID returns
// the ID to fn. A replay has a link to the execution whose response it returned. The link has the
// execution ID, and the span of the execution if it was recent and in this process. Spans that fn
// starts are not children of the span of the call, because fn uses the context of the caller.
//
// Each attempt at a step of an operation has a span with the name "idem" plus the kind: idem tx,
// idem call, idem undo. The span has the labels of idem.step.duration and the operation ID. Its
// parent is the span of the call or, in a Worker, the span in the context of the Worker.
//
// Each run of a handler of package inbox has a span "idem handle" with the name of the consumer.
// The span has links to the spans in which the messages were added, if outbox.Add got a context of
// outbox.WithCarrier. If the run handles only one message and its context has no span, the span in
// which the message was added is the parent.
//
// # Gauges of the database
//
// The gauges are read from the catalog, the statistics, the locks, and the rows of operations and
// messages in progress. No record is read. WithEvery sets the interval. Figures that the database
// role of the pool may not read are left out.
//
//	idem.records                   {record}       records, by idem.record.state: live or expired;
//	                                              unknown if expiry cannot be determined
//	idem.records.expired.age       s              time since the oldest expired record expired
//	idem.rows.live                 {row}          live rows, by idem.table: each table of the schema
//	idem.rows.dead                 {row}          dead rows, not vacuumed yet: idem.table
//	idem.storage.size              By             idem.table, idem.part (heap, index, other)
//	idem.transactions              {transaction}  open transactions that have claimed a key
//	idem.transactions.age          s              age of the oldest of these transactions
//	idem.keys.held                 {key}          keys that open transactions have locked
//	idem.purge.lag                 s              time since the last complete sweep of a table
//	                                              began: idem.table. Before the first complete
//	                                              sweep: the age of the current sweep, and for
//	                                              records the age of the oldest expired record
//	idem.purge.deleted             {row}          counter of rows that purge deleted: idem.table
//	idem.purge.speed               {record}/s     speed of the current or the last sweep
//	idem.purge.waiting             {sweep}        sweeps that wait, by idem.purge.reason
//	idem.operations                {operation}    unfinished: idem.operation.state (running, parked)
//	idem.operations.parked.age     s              longest time since an operation began the step at
//	                                              which it is parked
//	idem.operations.late           s              longest time for which an operation has been due
//	                                              without a process working on it
//	idem.outbox.waiting            {message}      messages to be published now
//	idem.outbox.delayed            {message}      messages that are not due yet; no other gauge
//	                                              counts them
//	idem.outbox.held               {message}      messages that could not be published, and
//	                                              messages that wait behind them
//	idem.outbox.oldest.age         s              age of the oldest unpublished message
//	idem.dead_letters              {message}      dead letters: idem.side (outbox, inbox)
//	idem.acts                      {act}          changes by people in the last day (idem.audit):
//	                                              idem.act (evict, retry, cancel, resolve, redrive,
//	                                              drop, forget)
//	idem.inbox.failing.age         s              longest time that a message has been failing
//	db.client.connection.count     {connection}   db.client.connection.state (idle, used),
//	                                              db.client.connection.pool.name
//	db.client.connection.max       {connection}   maximum number of connections of the pool
//	db.client.connection.timeouts  {timeout}      counter of callers that gave up waiting for a
//	                                              connection
//	idem.pool.waits                {wait}         counter of callers that had to wait for a
//	                                              connection
//
// Every process that calls Watch exports the same figures of the database, so aggregate them over
// processes with the maximum, not with the sum. The figures of the pool describe the pool of one
// process.
package idemotel
