// Package idemriver runs operations as River jobs. A program starts an operation together with a
// job, in its transaction. River's workers resume the operation, on any number of machines, with
// River's queues, priorities and limits.
//
//	var Checkout = idemriver.Define("checkout", checkout)
//
//	operations := idemriver.NewWorker(pool, idemriver.Config{}, Checkout)
//	river.AddWorker(workers, operations)
//	client, err := river.NewClient(driver, &river.Config{Workers: workers, Queues: …})
//	err = client.Start(ctx)
//	go operations.Watch(ctx, client) // in every process
//
//	id, err := Checkout.Start(ctx, client, tx, scope, key, hash, cart) // answer 202
//
// # Guarantees
//
// Operations have the guarantees of package operation. A job only makes a worker look at the
// operation that the job names. So the number and the order of the jobs do not matter, nor does a
// lost job. If an operation has two jobs, one of them runs it, in an epoch of its own; the other
// leaves it alone and completes. So a completed job does not mean that its operation has ended:
// call operation.Show or idem.Lookup.
//
// # When a process is killed
//
// River rescues a job that has run for RescueStuckJobsAfter. That is an hour by default, and it may
// not be shorter than the longest job. Package operation notices a dead process within
// milliseconds. About once a second, Watch looks for operations that are due and that no process
// runs, and inserts a job for each. The first free worker on any machine resumes the operation. If
// a process is killed after River gave it a job and before it began the operation, Watch needs
// about two seconds longer. The job of the killed process stays running until River rescues it, and
// then completes, because nothing is left to do. RescueStuckJobsAfter need not be changed.
//
// Behind a pooler in transaction mode, a dead process is noticed when its lease of 30 seconds ends.
//
// # Sleep, Await, errors
//
// An operation that sleeps, awaits a signal or backs off between attempts of a call holds no
// worker: its job completes, and Watch inserts another one when the operation is due. An error of
// the function is the error of the job. River retries the job by its own policy, or Watch inserts
// another one sooner, by the policy of package operation. If the operation is parked, canceled, or
// ended by a Final error, its job is canceled with the error. River stores errors in river_job:
// keep secrets out of them.
//
// If River stops, or a job exceeds Config.Timeout, another process resumes the operation. If that
// happens during an operation.Once call, the operation parks. So give River's Stop the time that
// such a call takes.
//
// Do not run an operation.Worker for the same definitions: it would resume operations outside of
// River's queues. All jobs have the kind idem_operation, and Definition.InsertOpts sets the queue
// of each definition. A process without the definition of a job snoozes the job for some seconds,
// so that new code can be rolled out.
//
// # Messages
//
// A Publisher inserts a job for each message of an outbox, and a OnceWorker gives jobs their effect
// once: see package inbox. Both are independent of operations.
//
//	publisher := idemriver.NewPublisher(client, idemriver.PublisherConfig{})
//	relay := outbox.NewRelay(pool, publisher, outbox.RelayConfig{})
//
//	river.AddWorker(workers, idemriver.NewOnceWorker(pool, "billing", bill, idemriver.OnceConfig{}))
//
// A message becomes a job if its transaction commits, and never otherwise. Its ID keeps the job
// unique while River keeps the job, a day by default; after that the inbox recognizes the ID. If
// River refuses the job of one message, for example because of an invalid queue, the message counts
// an attempt. If outbox and jobs are in one database, a transaction can insert the job itself. The
// Publisher is for jobs in another database, and for messages that others read as well.
//
// Each job of a OnceWorker has its effect once, or is a dead letter with the reason, however often
// River works on it, even concurrently. So RescueStuckJobsAfter may be as short as JobTimeout. A
// job whose process was killed waits for that time. A job that has to be tried again is snoozed,
// which is no attempt of River's. The job of a dead letter is canceled with its error. River counts
// an attempt when a process is killed during a job, and discards the job after MaxAttempts. A
// Message has 32,767 by default. Give other jobs enough for the processes that may be killed. Jobs
// have no order. The retention of the inbox, [inbox.WithRetention], has to exceed the longest time
// that a job may wait.
package idemriver
