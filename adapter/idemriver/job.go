package idemriver

// Job is one go at an operation. It says which one, and nothing of what it is about: neither key nor input is in River's tables.
type Job struct {
	Operation string `json:"operation"`
	Name      string `json:"name"`
	Epoch     int    `json:"epoch"` // in which no process worked on it
	Round     int    `json:"round"` // how often a job was made of that
}

// Kind makes Job the arguments of a River job.
func (Job) Kind() string { return "idem_operation" }
