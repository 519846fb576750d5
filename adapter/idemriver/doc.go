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
// Operations have the guarantees of package operation. A job only names an operation that a worker
// should run. So extra jobs and jobs in another order do no harm, and Watch replaces a lost job. If
// two workers have jobs of the same operation, one worker runs the operation and the other
// completes its job at once. So a completed job does not mean that its operation has ended: call
// operation.Show or idem.Lookup.
//
// # When a process is killed
//
// River rescues a job that has run for RescueStuckJobsAfter. This limit is an hour by default, and
// may not be shorter than the longest job. Package operation notices a dead process within
// milliseconds. About once a second, Watch looks for operations that are due and that no process
// runs, and inserts a job for each. The first free worker on any machine resumes the operation. If
// a process is killed between the start of a job and the start of its operation, Watch inserts the
// new job about two seconds later. The job of the killed process stays in the state running until
// River rescues it. Then it completes at once if the operation has ended. RescueStuckJobsAfter need
// not be changed.
//
// Behind a pooler in transaction mode, package operation notices a dead process only when the lease
// of the process ends, after 30 seconds.
//
// # Sleep, Await, errors
//
// An operation that sleeps, awaits a signal or backs off between attempts of a call occupies no
// worker: its job completes, and Watch inserts another job when the operation is due. If the
// function of an operation returns an error, the job fails with the error. River retries the job by
// River's policy, and Watch may insert another job sooner, by the backoff of package operation. If
// the operation is parked or canceled, or a Final error ends it, the worker cancels the job with
// that error. River stores the errors of jobs in river_job: keep secrets out of errors.
//
// If River stops during a job, or the job exceeds Config.Timeout, a later job resumes the
// operation. If a call with operation.Once was in progress, the operation parks instead, because
// the outcome of the call is in doubt. So give River's Stop the time that the longest such call
// takes.
//
// Do not run an operation.Worker for the same definitions: it would resume operations outside of
// River's queues. All jobs have the kind idem_operation, and Definition.InsertOpts sets the queue
// of each definition. A process without the definition of a job snoozes the job for 10 to 20
// seconds. So definitions can be added while processes with older code still run.
//
// # Messages
//
// A Publisher inserts a job for each message of an outbox. A OnceWorker gives each job its effect
// once, with package inbox. Neither of them needs operations.
//
//	publisher := idemriver.NewPublisher(client, idemriver.PublisherConfig{})
//	relay := outbox.NewRelay(pool, publisher, outbox.RelayConfig{})
//
//	river.AddWorker(workers, idemriver.NewOnceWorker(pool, "billing", bill, idemriver.OnceConfig{}))
//
// A message becomes a job if its transaction commits, and never otherwise. A relay may publish a
// message twice. River then refuses a second job with the ID of the message while it retains the
// first job, a day by default; after that the inbox recognizes the ID. If River refuses the job of
// one message, for example because of an invalid queue, the relay counts an attempt of this
// message. If the outbox and River share a database, insert the job in your transaction instead of
// adding a message. The Publisher is for jobs in another database, and for messages that have other
// readers too.
//
// Each job of a OnceWorker has its effect once, or is a dead letter with the reason. This holds
// however often River works on the job, even concurrently. So RescueStuckJobsAfter may be as short
// as JobTimeout. If a process is killed during a job, the job waits for RescueStuckJobsAfter. The
// worker snoozes a failed job until its next attempt is due, and River counts no attempt for a
// snooze. If the job becomes a dead letter, the worker cancels the job with its error. River counts
// an attempt when a process is killed during a job, and discards the job after MaxAttempts. By
// default, MaxAttempts is 32,767 for a Message. For other jobs, set it above the number of times
// that a process may be killed during one job. Jobs have no order. The retention of the inbox,
// [inbox.WithRetention], has to exceed the longest time that a job may wait in River.
package idemriver
