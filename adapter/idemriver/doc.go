// Package idemriver has the work of operations done by River: an operation is started together with a job, in the caller's
// transaction, and River's workers go on with it, on any number of machines, with River's queues, priorities and limits.
//
//	var Checkout = idemriver.Define("checkout", func(op *operation.Op, in Cart) (idem.Response, error) { … })
//
//	operations := idemriver.NewWorker(pool, idemriver.Config{}, Checkout)
//	river.AddWorker(workers, operations)
//	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Workers: workers, Queues: …})
//	err = client.Start(ctx)
//	go operations.Watch(ctx, client) // in every process
//
//	id, err := Checkout.Start(ctx, client, tx, scope, key, hash, cart) // answer 202
//
// # What is guaranteed
//
// What package operation guarantees. A job is no more than the reason to look at an operation, and it does not matter how many
// there are, in which order they are worked on, or whether one is lost. Two jobs of one operation never work on it at once: one takes it
// up, in an epoch of its own, and the other leaves it alone and is completed. So a job that River calls completed is over, and its
// operation may go on: ask operation.Show, or idem.Lookup.
//
// # When a process is killed
//
// River notices that a job has stopped when it has run for RescueStuckJobsAfter, which is an hour by default, and may not be
// shorter than its longest job. Package operation notices that a process is gone by its presence, within milliseconds. Watch looks for
// operations that are due and no process works on, about once a second, and inserts another job for each: the first free worker on any
// machine goes on. If a process is killed after River has given it a job and before it has begun with the operation, it takes some two
// seconds longer to notice. The job of the killed process stays behind as running until River rescues it, and is completed then, because
// there is nothing left to do. RescueStuckJobsAfter need not be changed.
//
// Behind a pooler in transaction mode, presence is a lease of 30 seconds.
//
// # Sleep, Await, errors
//
// An operation that sleeps, waits for a signal, or pauses between attempts of a call holds no worker: its job is completed, and
// Watch makes another one when it is due. An error of its function is the job's, which River repeats by its own policy; Watch may be
// sooner, by that of package operation, and it does not matter who is. A job whose operation is parked, cancelled, or ended in an error
// that is Final is cancelled, with the error. River stores errors in river_job: keep secrets out of yours.
//
// If River stops, or a job has taken longer than Config.Timeout, its operation is let go of, and goes on in another process. A call
// that is operation.Once is parked by that, if it is under way: give River's Stop the time that such a call takes.
//
// Do not run an operation.Worker for the same definitions: it would take operations from River's queues. Jobs are one kind,
// idem_operation, whatever the operation; Definition.InsertOpts gives each its queue. A process without the definition of a job puts
// it back for some seconds, so that new code can be rolled out.
//
// # Messages
//
// A Publisher makes a job of each message of an outbox, and a OnceWorker gives jobs their effect once: see package inbox. Neither has to
// do with operations.
//
//	relay := outbox.NewRelay(pool, idemriver.NewPublisher(client, idemriver.PublisherConfig{}), outbox.RelayConfig{})
//
//	river.AddWorker(workers, idemriver.NewOnceWorker(pool, "billing", bill, idemriver.OnceConfig{}))
//
// Every message whose transaction has committed becomes a job, and none whose transaction has not. Its id makes the job unique for as long as
// River keeps it, a day by default; after that the inbox knows the id. A message that River refuses alone is blamed, such as one for a
// queue that cannot have its name. Where outbox and jobs are in one database, a transaction can insert the job by itself: the Publisher is
// for jobs in another database, and for messages that others read as well.
//
// Every job that a OnceWorker works on has its effect once, or is a dead letter with the reason, however often River works on it, two
// at a time even. So RescueStuckJobsAfter may be as short as JobTimeout: the job of a process that was killed waits for that, an hour
// by default. A job that is to be tried again is snoozed, which is none of River's attempts, and a dead one is cancelled, with the
// error, which River stores: keep secrets out of yours. River's MaxAttempts of a Message is 32,767; of any other job, leave room for
// processes that are killed, because River discards a job after so many. Jobs have no order. The retention of
// the inbox, [inbox.WithRetention], has to exceed the longest time for which a job may wait.
package idemriver
