// Package presence shows other processes that this process is there, so that the operations that it works on are left to it, and notices when
// another process is gone.
//
// A process shows itself as an [Instance], a number that no other has. It holds one connection beside the pool, and on it an advisory lock on its
// number: a session. If the process is killed the lock is gone within milliseconds. Behind a pooler there are no sessions, and a lease of 30
// seconds takes their place. Nothing that is safe rests on this: every commit of an operation is fenced by its epoch.
//
// Of the processes that run a Worker two are guards. They watch the locks of those that own operations, and find what is due: see [Watcher].
package presence

// keeper keeps an instance visible.
type keeper interface {
	// keep returns when that is over, or with what keeps the instance visible from there on. done says that it may end.
	keep(done <-chan struct{}) (next keeper)
}
