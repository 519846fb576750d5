// Package history is the memory of a run: every call of every worker, from its beginning to its end, in files.
//
// A worker appends one line of JSON for each [Event], with one write, before the call begins and after it has returned.
// What a killed process wrote stays in the file; its last line may be torn, and the calls without a return are open. The
// times are those of one clock for all processes of a machine ([Now]).
//
// A [Run] is the folder of one run: the files of the workers, and what was found in the database afterwards. All
// events of a key are in the shard of that key: a checker divides a long run by shards ([Divide]), and needs no more
// memory for it than for a short one.
package history
