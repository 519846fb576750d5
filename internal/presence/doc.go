// Package presence makes a process visible to others, so that they leave its operations to it, and notices when another process is gone.
//
// A process shows itself as an [Instance], a number that no other has. It holds one connection beside the pool, and on it an advisory lock on its
// number: a session. If the process is killed the lock is gone within milliseconds. Behind a pooler there are no sessions, and a lease of 30
// seconds takes their place. Nothing that is safe rests on this: every commit of an operation is fenced by its epoch.
//
// Of the processes that run a Worker two are guards. They watch the locks of those that own operations, and find what is due: see [Watcher].
package presence

// visibility keeps an instance visible: a session or a lease.
type visibility interface {
	// keep returns when the instance is no longer visible, or done is closed. next takes over.
	keep(done <-chan struct{}) (next visibility)
}
