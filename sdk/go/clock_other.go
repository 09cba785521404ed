//go:build !linux

package leasehold

import (
	"sync"
	"time"
)

// slept is by how much more the clock on the wall must have gone on than the monotonic one to count as a sleep.
const slept = 2 * time.Second

var steps = struct {
	sync.Mutex
	began time.Time
	last  time.Time
	ahead time.Duration
}{began: time.Now(), last: time.Now()}

// now is the monotonic clock, plus what only the clock on the wall has seen: a jump forward counts as time that has
// passed. It can only lose a lease early.
func now() time.Duration {
	steps.Lock()
	defer steps.Unlock()
	read := time.Now()
	wall, monotonic := read.Round(0).Sub(steps.last.Round(0)), read.Sub(steps.last)
	if wall-monotonic > slept {
		steps.ahead += wall - monotonic
	}
	steps.last = read
	return read.Sub(steps.began) + steps.ahead
}
