package leasehold

import (
	"sync/atomic"
	"time"
)

// Clock is what leases are counted on: a length since some moment, never backwards, that goes on while the machine sleeps.
type Clock interface{ Now() time.Duration }

type systemClock struct{}

func (systemClock) Now() time.Duration { return now() }

// TestClock is the clock of the system, which a test can set forward: as if the machine had slept.
type TestClock struct{ ahead atomic.Int64 }

// Now is the clock's time.
func (c *TestClock) Now() time.Duration { return now() + time.Duration(c.ahead.Load()) }

// Advance sets it forward.
func (c *TestClock) Advance(by time.Duration) { c.ahead.Add(int64(by)) }
