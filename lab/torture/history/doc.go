// Package history stores every call of every worker of a run in files, from its beginning to its
// end.
//
// A worker appends one line of JSON for each [Event], with one write, before the call begins and
// after it has returned. The lines of a killed process stay in the file. Its last line may be
// incomplete, and its calls without a return are open. All processes use the same clock ([Now]).
//
// All events of a key are in the same shard. A checker can [Divide] a long run by shards, so that
// its memory does not depend on the length of the run.
package history
