package result

import (
	"fmt"
	"math"
)

// Grouped shows a whole number with commas between its thousands.
func Grouped(figure float64) string {
	if math.IsNaN(figure) {
		return "-"
	}
	digits := fmt.Sprintf("%.0f", figure)
	for at := len(digits) - 3; at > 0 && digits[at-1] != '-'; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}
