package machine

import "time"

// phase is where an entry stands; one of the types below.
type phase interface {
	// dueAt is when something must be done about it. What waits for a connection is sent when there is one, not at a time.
	dueAt(isInLine bool) time.Duration
}

type acquiring struct {
	// giveUp is when the caller is told that no answer came.
	giveUp    time.Duration
	waitUntil time.Duration
	ticket    string
	// isInDoubt: something was sent of which nobody knows what came.
	isInDoubt bool
	tries     int
	// next is when to send again: after a failure, or because the answer is overdue.
	next time.Duration
	last *Problem
}

// beat is the next heartbeat, and the ones that were sent since the last that was confirmed.
type beat struct {
	// at is Never where none is wanted.
	at        time.Duration
	tries     int
	firstSent time.Duration
}

var noBeat = beat{at: Never, firstSent: Never}

type held struct {
	standing Standing
	// sent is when the request was sent that the standing is the answer to.
	sent time.Duration
	beat beat
}

// confirming was granted, but so long ago that it must be confirmed before anybody relies on it.
type confirming struct {
	acquiring *acquiring
	held      *held
}

// jeopardy: nothing is renewed any more.
type jeopardy struct{ standing Standing }

// joined is held under a session.
type joined struct{}

type releasing struct {
	// until is when the lease is over anyway.
	until time.Duration
	// isQuiet: nobody asked for it, it cleans up.
	isQuiet   bool
	isInDoubt bool
	tries     int
	next      time.Duration
}

// abandoned: nobody wants it any more; what it may have got must not stay behind.
type abandoned struct {
	until time.Duration
	tries int
	next  time.Duration
}

func unlessInLine(isInLine bool, at time.Duration) time.Duration {
	if isInLine {
		return Never
	}
	return at
}

func (p *acquiring) dueAt(isInLine bool) time.Duration {
	return min(p.giveUp, unlessInLine(isInLine, p.next))
}

func (p *held) dueAt(isInLine bool) time.Duration {
	return min(p.standing.JeopardyAt(), unlessInLine(isInLine, p.beat.at))
}

func (p *confirming) dueAt(isInLine bool) time.Duration {
	return min(p.acquiring.next, unlessInLine(isInLine, p.held.beat.at))
}

func (p *jeopardy) dueAt(bool) time.Duration { return p.standing.LapsesAt() }

func (p *joined) dueAt(bool) time.Duration { return Never }

func (p *releasing) dueAt(isInLine bool) time.Duration {
	return min(p.until, unlessInLine(isInLine, p.next))
}

func (p *abandoned) dueAt(isInLine bool) time.Duration {
	return min(p.until, unlessInLine(isInLine, p.next))
}

type entry struct {
	data   any
	ask    Ask
	phase  phase
	isKept bool
	// timer is when it is next looked at.
	timer time.Duration
	// call is the request that was sent last, if its answer is still to come.
	call *Key
	// isInLine: it has something to send and waits for a connection.
	isInLine bool
	members  map[Key]struct{}
	// denied is why the last renewal was not let in. If nothing better comes, that is how the lease was lost.
	denied *Problem
}

func (e *entry) dueAt() time.Duration { return e.phase.dueAt(e.isInLine) }

// standing is the lease as it stands, while it is held.
func (e *entry) standing() (Standing, bool) {
	switch p := e.phase.(type) {
	case *held:
		return p.standing, true
	case *jeopardy:
		return p.standing, true
	}
	return Standing{}, false
}

// call is a request on its way.
type call struct {
	key  Key
	sent time.Duration
	link int
}

// timer is a moment at which an entry is looked at.
type timer struct {
	at  time.Duration
	key Key
}

// timers is a heap, the earliest first; of the same moment, that of the lowest place.
type timers []timer

func (t timers) Len() int      { return len(t) }
func (t timers) Swap(i, j int) { t[i], t[j] = t[j], t[i] }
func (t timers) Less(i, j int) bool {
	if t[i].at != t[j].at {
		return t[i].at < t[j].at
	}
	return compareKeys(t[i].key, t[j].key) < 0
}
func (t *timers) Push(x any) { *t = append(*t, x.(timer)) }
func (t *timers) Pop() any {
	last := len(*t) - 1
	x := (*t)[last]
	*t = (*t)[:last]
	return x
}
