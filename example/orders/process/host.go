package process

import (
	"fmt"
	"math/rand/v2"
	"runtime"
)

// Host returns an address of this machine at which hardly any other program listens, so that one that is started again there finds
// its port free. Of such addresses Linux has a network. Elsewhere there is one for all, and another program may be given the
// port meanwhile.
func Host() string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1"
	}
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
}
