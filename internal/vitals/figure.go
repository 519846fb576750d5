package vitals

// Quality says what a figure is worth.
type Quality string

// The qualities.
const (
	Exact    Quality = "exact"
	Estimate Quality = "estimate" // Note says what it rests on
	Unknown  Quality = "unknown"  // Note says why
)

// Figure is a number with what it is worth. The value of one that is unknown is zero.
type Figure[T any] struct {
	Value   T       `json:"value"`
	Quality Quality `json:"quality"`
	Note    string  `json:"note,omitempty"`
}

// Known reports whether there is a value.
func (f Figure[T]) Known() bool { return f.Quality == Exact || f.Quality == Estimate }

func exact[T any](value T) Figure[T] { return Figure[T]{Value: value, Quality: Exact} }

func estimate[T any](value T, note string) Figure[T] {
	return Figure[T]{Value: value, Quality: Estimate, Note: note}
}

func unknown[T any](note string) Figure[T] { return Figure[T]{Quality: Unknown, Note: note} }
