package operation

// Forget drops what this process remembers of an operation, as if the process had ended.
func Forget(id string) { unkept.take(id) }
