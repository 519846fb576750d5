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
// No label and no attribute holds a scope, a key, a request or the text of an error. All labels
// have closed sets of values: the name that the program sets with idem.WithName, the kind of the
// call, its outcome, and the cause of its error. The first hundred names are kept apart. Later
// names are reported as "_OTHER".
//
//	idem.call.duration      s         histogram of all calls:
//	                                  idem.name, idem.kind, idem.outcome, error.type
//	idem.wait.duration      s         histogram of the wait of calls that waited for another call:
//	                                  idem.name, idem.outcome
//	idem.replay.age         s         histogram of the time from first use of the key to a replay:
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
// The same observer works in outbox.RelayConfig and inbox.WithObserver. No label holds a topic, an
// ID or a key. The name of a consumer, which the program sets, is a label.
//
//	idem.outbox.messages          {message}  counter: idem.outcome (published, failed, or away for
//	                                         messages that an error left open and that come again)
//	idem.outbox.publish.duration  s          histogram of calls of the publisher:
//	                                         idem.outcome (failed if a message was not published)
//	idem.inbox.messages           {message}  counter: idem.consumer,
//	                                         idem.outcome (done, duplicate, retry, dead)
//	idem.inbox.hindered           {attempt}  counter of attempts that failed for a reason outside of
//	                                         the message and do not count: idem.consumer
//	idem.inbox.paused             {message}  counter of messages that a consumer put off because it
//	                                         had failed with many in a row: idem.consumer
//	idem.inbox.handle.duration    s          histogram of calls, for one or many messages:
//	                                         idem.consumer, error.type
//
// The durations are also exported under the names of OpenTelemetry's semantic conventions, for
// dashboards that know these. messaging.system is "idem": the broker is not known here.
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
// has the execution ID as an attribute. The record has the same ID, and idem.ExecutionID returns it
// to fn. A replay has a link to the execution whose response it returned: by the execution ID, and
// by the span if this process executed it recently. Spans that fn starts are not children of these
// spans, because fn has the context of its caller.
//
// Each attempt at a step of an operation has a span with the name "idem" plus the kind: idem tx,
// idem call, idem undo. It has the labels of idem.step.duration and the operation ID. Its parent is
// the span of the call or, in a Worker, the span in the context of the Worker.
//
// Each run of a handler of package inbox has a span "idem handle" with the consumer. It has links
// to the spans in which its messages were added, if outbox.Add was given a context of
// outbox.WithCarrier. If the context of the call has no span and there is a single message, the
// span of that message is the parent.
//
// # Gauges of the database
//
// The gauges are read from the catalog, the statistics, the locks, and the rows of operations and
// messages in progress. They never read records. See WithEvery for the interval. Figures that the
// role of the pool cannot read are left out.
//
//	idem.records                   {record}       idem.record.state: live, expired;
//	                                              unknown if expiry cannot be determined
//	idem.records.expired.age       s              time since the oldest expired record expired
//	idem.rows.live                 {row}          idem.table: each table of the schema
//	idem.rows.dead                 {row}          not vacuumed yet: idem.table
//	idem.storage.size              By             idem.table; idem.part: heap, index, other
//	idem.transactions              {transaction}  open transactions that have claimed a key
//	idem.transactions.age          s              age of the oldest of them
//	idem.keys.held                 {key}          keys that they hold
//	idem.purge.lag                 s              age of the last complete sweep: idem.table.
//	                                              Before the first one is complete: its age, and for
//	                                              records the age of the oldest expired record
//	idem.purge.deleted             {row}          counter: idem.table
//	idem.purge.speed               {record}/s     of the current sweep, or of the last one
//	idem.purge.waiting             {sweep}        sweeps that wait: idem.purge.reason
//	idem.operations                {operation}    not ended: idem.operation.state (running, parked)
//	idem.operations.parked.age     s              time since the earliest step began at which an
//	                                              operation is parked
//	idem.operations.late           s              longest time for which an operation has been due
//	                                              without a process working on it
//	idem.outbox.waiting            {message}      to be published
//	idem.outbox.delayed            {message}      not due yet, and in no other figure until then
//	idem.outbox.held               {message}      behind a message that could not be published,
//	                                              or that message itself
//	idem.outbox.oldest.age         s              age of the oldest unpublished message
//	idem.dead_letters              {message}      waiting for a person: idem.side (outbox, inbox)
//	idem.acts                      {act}          changes by people in the last day (idem.audit):
//	                                              idem.act (evict, retry, cancel, resolve, redrive,
//	                                              drop, forget)
//	idem.inbox.failing.age         s              longest time that a message has been failing
//	db.client.connection.count     {connection}   db.client.connection.state (idle, used),
//	                                              db.client.connection.pool.name
//	db.client.connection.max       {connection}   limit of the pool
//	db.client.connection.timeouts  {timeout}      counter of callers that gave up waiting for a
//	                                              connection
//	idem.pool.waits                {wait}         counter of callers that had to wait for one
//
// Every process that watches exports the same figures of the database: aggregate them with the
// maximum, not with the sum. The figures of the pool are those of the process.
package idemotel
