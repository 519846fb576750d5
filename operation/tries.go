package operation

import "strconv"

// How often a call was tried, as it is stored.

func triesValue(tries int) []byte {
	if tries == 0 {
		return nil
	}
	return strconv.AppendInt(nil, int64(tries), 10)
}

func triesOf(value []byte) int {
	tries, _ := strconv.Atoi(string(value))
	return tries
}
