package result

// GrowthSizes are the records that tables of the plan have. The first is what the others are compared with.
func GrowthSizes() []int { return []int{1e4, 1e6, 1e7} }

// GrowthPoints are where tables of several sizes are compared.
func GrowthPoints() []Point {
	var points []Point
	for _, work := range []string{First, Replay} {
		for _, clients := range []int{1, 8} {
			points = append(points, Point{Work: work, Business: Insert, Leg: Grown, Clients: clients})
		}
	}
	return points
}
