// Package machine is the client's side of the promise, without a clock, a network or a goroutine.
//
//	asked: acquire, release, abandon --+                +--> connect to this server
//	heard: answer, failure, up, down --+--> Machine ----+--> send this request, cancel that one
//	the time --------------------------+  (one client)  +--> tell: granted, renewed, jeopardy, lost, released
//	                                                    +--> wake me then
//
// A port of the machine of the Rust SDK, and held to it by the vectors in sdk/vectors/machine. Moments are lengths since
// the zero of some clock, and come in as arguments. Every input takes the time first and works off what has become due
// before it looks at the input itself, so a process that slept through its lease learns that before anything else.
//
//   - A lease counts from the moment before the request was sent that got or renewed it, see [Standing].
//   - A heartbeat goes out after a third of the ttl at the latest. What fails by transport is sent again until half of the
//     ttl is over, and so is what the server does not let in; what it refuses otherwise ends the lease at once.
//   - Half of the ttl after the last confirmed request was sent the work must stop (jeopardy), and does not start again.
//     When the ttl is over the lease is lost.
//   - A grant that comes so late that a heartbeat is due is confirmed by one before anybody is told.
//   - An acquire is sent again, under the same request id, after a broken connection and when a server cannot decide just
//     now; a release is too, as long as the lease could still stand.
//   - An acquire that nobody wants any more leaves nothing behind: it is canceled, and what it may have got is released.
//   - With several servers, the next one is tried when one cannot be reached, answers nobody or does not lead.
package machine

import (
	"container/heap"
	"slices"
	"time"
)

const (
	// resendPart: a heartbeat that is not answered is sent again after this part of the ttl: three fit between a third and
	// a half.
	resendPart = 18
	resendMin  = 5 * time.Millisecond
	// stallPart: a connection over which nothing came for this part of the ttl, though a heartbeat is out, is given up.
	stallPart = 9
)

// Machine is one client. It is not safe for goroutines: one of them drives it.
type Machine struct {
	settings  Settings
	servers   servers
	jitter    Jitter
	entries   slab[entry]
	calls     slab[call]
	timers    timers
	line      []Key
	actions   []Action
	links     int
	link      int // 0: none
	isUp      bool
	heard     time.Duration
	linkUntil time.Duration
	linkTries int
}

// New makes a client of at least one server, which wants to connect at once.
func New(now time.Duration, addresses []string, settings Settings, jitter Jitter) *Machine {
	m := &Machine{
		settings:  settings,
		servers:   servers{addresses: slices.Clone(addresses)},
		jitter:    jitter,
		linkUntil: now,
	}
	m.reconnectIfDue(now)
	return m
}

// NextAction is what to do next; nil when all is done for now.
func (m *Machine) NextAction() Action {
	if len(m.actions) == 0 {
		m.actions = nil
		return nil
	}
	first := m.actions[0]
	m.actions[0] = nil
	m.actions = m.actions[1:]
	return first
}

// NextWake is when Wake must be called at the latest; Never if nothing is due.
func (m *Machine) NextWake() time.Duration {
	for len(m.timers) > 0 && !m.isTimer(m.timers[0]) {
		heap.Pop(&m.timers)
	}
	if len(m.timers) == 0 {
		return m.linkUntil
	}
	return min(m.timers[0].at, m.linkUntil)
}

// Wake says that it is that late.
func (m *Machine) Wake(now time.Duration) { m.workOff(now) }

// Data is what was given with the key; nil if it is over.
func (m *Machine) Data(key Key) any {
	if e := m.entries.get(key); e != nil {
		return e.data
	}
	return nil
}

// Standing is the lease that the key's grant stands under, while it is held.
func (m *Machine) Standing(key Key) (Standing, bool) {
	e := m.entries.get(key)
	if e == nil {
		return Standing{}, false
	}
	if _, isJoined := e.phase.(*joined); isJoined && e.ask.Session != nil {
		return m.standingOf(*e.ask.Session)
	}
	return e.standing()
}

func (m *Machine) standingOf(key Key) (Standing, bool) {
	if e := m.entries.get(key); e != nil {
		return e.standing()
	}
	return Standing{}, false
}

// Keys are those of everything that goes on.
func (m *Machine) Keys() []Key { return m.entries.keys() }

// Len is how many leases, sessions and acquires go on.
func (m *Machine) Len() int { return m.entries.len() }

// Server is the server that is in use or about to be.
func (m *Machine) Server() string { return m.servers.addresses[m.servers.current] }

// Acquire asks for a lease, a session, or a grant under one. The data is kept with it.
func (m *Machine) Acquire(now time.Duration, data any, ask Ask) Key {
	m.workOff(now)
	waitUntil := after(now, ask.Wait)
	a := &acquiring{waitUntil: waitUntil, giveUp: after(waitUntil, m.settings.Patience), next: Never}
	key := m.entries.insert(&entry{data: data, ask: ask, phase: a, isKept: ask.IsKept, timer: Never, members: map[Key]struct{}{}})
	if ask.Session != nil {
		session := m.entries.get(*ask.Session)
		if session == nil {
			m.end(key, Ended{Kind: EndLost, Loss: SessionClosed})
			return key
		}
		session.members[key] = struct{}{}
	}
	m.sendAcquire(now, key)
	m.rearm(key)
	return key
}

// Release gives it back; with a session, everything under it. False if there is nothing to give back any more.
func (m *Machine) Release(now time.Duration, key Key) bool {
	m.workOff(now)
	e := m.entries.get(key)
	if e == nil || !isHeldSomehow(e.phase) {
		return false
	}
	m.startRelease(now, key, false)
	m.rearm(key)
	return true
}

func isHeldSomehow(p phase) bool {
	switch p.(type) {
	case *held, *jeopardy, *joined:
		return true
	}
	return false
}

// Abandon says that nobody wants the answer to an acquire any more, or the grant that it got.
func (m *Machine) Abandon(now time.Duration, key Key) {
	m.workOff(now)
	e := m.entries.get(key)
	if e == nil {
		return
	}
	switch p := e.phase.(type) {
	case *acquiring:
		if e.call != nil || p.isInDoubt {
			m.cleanUp(now, key)
		} else {
			m.end(key, Ended{Kind: EndForgotten})
		}
	case *confirming, *held, *jeopardy, *joined:
		m.startRelease(now, key, true)
	}
	m.rearm(key)
}

// Renew renews now, whenever the next heartbeat is due. False if there is nothing to renew.
func (m *Machine) Renew(now time.Duration, key Key) bool {
	m.workOff(now)
	e := m.entries.get(key)
	if e == nil {
		return false
	}
	h, isHeld := e.phase.(*held)
	if !isHeld {
		return false
	}
	isUnwanted := h.beat == noBeat
	m.sendBeat(now, key)
	if h, isHeld := e.phase.(*held); isHeld && isUnwanted {
		h.beat = noBeat
	}
	m.rearm(key)
	return true
}

// StartHeartbeat keeps a lease alive from here on that was asked for without.
func (m *Machine) StartHeartbeat(now time.Duration, key Key) {
	m.workOff(now)
	e := m.entries.get(key)
	if e == nil {
		return
	}
	if e.ask.Session == nil {
		e.isKept = true
	}
	if h, isHeld := e.phase.(*held); isHeld && h.beat == noBeat {
		h.beat = m.nextBeat(h.standing)
		m.rearm(key)
	}
}

// Answer says that an answer came.
func (m *Machine) Answer(now time.Duration, of Key, answer Answer) {
	m.workOff(now)
	sent := m.calls.remove(of)
	if sent == nil {
		return
	}
	m.heardFrom(now, sent.link)
	e := m.entries.get(sent.key)
	if e == nil {
		return
	}
	isLatest := e.call != nil && *e.call == of
	if isLatest {
		e.call = nil
	}
	switch a := answer.(type) {
	case Granted:
		m.granted(now, sent, a)
	case Renewed:
		m.renewed(now, sent, a)
	case Refused:
		m.refused(now, sent, isLatest, a.Problem)
	case Released:
		m.released(sent.key)
	}
	m.rearm(sent.key)
}

// Failed says that no answer came, though the connection may go on.
func (m *Machine) Failed(now time.Duration, of Key, failure Failure) {
	m.workOff(now)
	sent := m.calls.remove(of)
	if sent == nil {
		return
	}
	m.tryAnother(now, sent.link)
	m.callFailed(now, of, sent, failure)
}

// Lost says that the server said, unasked, that a lease or a grant is over.
func (m *Machine) Lost(now time.Duration, key Key, problem *Problem) {
	m.workOff(now)
	if e := m.entries.get(key); e != nil && isHeldSomehow(e.phase) {
		m.end(key, Ended{Kind: EndLost, Loss: Told, Problem: problem})
	}
}

// workOff does what is due, the oldest first.
func (m *Machine) workOff(now time.Duration) {
	for len(m.timers) > 0 && m.timers[0].at <= now {
		first := heap.Pop(&m.timers).(timer)
		if !m.isTimer(first) {
			continue
		}
		e := m.entries.get(first.key)
		e.timer = Never
		// It may have been set for something that has happened meanwhile.
		if e.dueAt() <= now {
			m.due(now, first.key, e)
		}
		m.rearm(first.key)
	}
	m.reconnectIfDue(now)
}

func (m *Machine) isTimer(t timer) bool {
	e := m.entries.get(t.key)
	return e != nil && e.timer == t.at
}

func (m *Machine) due(now time.Duration, key Key, e *entry) {
	switch p := e.phase.(type) {
	case *acquiring:
		m.acquiringDue(now, key, p)
	case *confirming:
		if p.acquiring.next <= now {
			m.askAnew(now, key)
		} else {
			m.sendBeat(now, key)
		}
	case *held:
		m.heldDue(now, key, p)
	case *jeopardy:
		m.lapse(key)
	case *releasing:
		m.releasingDue(now, key, e, p)
	case *abandoned:
		m.forgetCall(now, key)
		if p.until <= now {
			m.end(key, Ended{Kind: EndForgotten})
		} else {
			m.sendToFindOut(now, key)
		}
	}
}

// rearm sees to it that there is a timer when the entry is next due, or earlier: most leases are given back before any of
// their timers fires, and looking once too often costs less than setting each anew.
func (m *Machine) rearm(key Key) {
	e := m.entries.get(key)
	if e == nil {
		return
	}
	due := e.dueAt()
	if due == Never || e.timer <= due {
		return
	}
	e.timer = due
	heap.Push(&m.timers, timer{due, key})
}

// send sends, or stands in line for a connection; true if it was sent.
func (m *Machine) send(now time.Duration, key Key, request Request) bool {
	e := m.entries.get(key)
	if e == nil {
		return false
	}
	if !m.isUp || m.link == 0 {
		if !e.isInLine {
			e.isInLine = true
			m.line = append(m.line, key)
		}
		return false
	}
	sent := m.calls.insert(&call{key, now, m.link})
	e.call = &sent
	m.actions = append(m.actions, Send{sent, key, request})
	return true
}

func (m *Machine) tell(key Key, news News, standing Standing) {
	m.actions = append(m.actions, Tell{key, news, standing})
}

// end forgets the entry, and ends what stands under it.
func (m *Machine) end(key Key, how Ended) {
	e := m.entries.remove(key)
	if e == nil {
		return
	}
	if e.ask.Session != nil {
		if session := m.entries.get(*e.ask.Session); session != nil {
			delete(session.members, key)
		}
	}
	for _, member := range inOrder(e.members) {
		m.end(member, how.ofWhatStoodUnder())
	}
	m.actions = append(m.actions, End{key, e.data, how})
}

func inOrder(members map[Key]struct{}) []Key {
	keys := make([]Key, 0, len(members))
	for key := range members {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, compareKeys)
	return keys
}

func (m *Machine) callFailed(now time.Duration, of Key, sent *call, failure Failure) {
	e := m.entries.get(sent.key)
	if e == nil {
		return
	}
	if p, isAcquiring := e.phase.(*acquiring); isAcquiring && failure == Unknown {
		p.isInDoubt = true
	}
	// Another one was sent since: that one counts.
	if e.call == nil || *e.call != of {
		return
	}
	e.call = nil
	switch p := e.phase.(type) {
	case *acquiring:
		m.tryAcquireLater(now, p, 0)
	case *confirming:
		m.beatFailed(now, p.held, -1)
	case *held:
		m.beatFailed(now, p, -1)
	case *releasing:
		m.releaseFailed(now, p, failure)
	case *abandoned:
		m.abandonedFailed(now, p)
	}
	m.rearm(sent.key)
}

// refused: a refusal of a request that was sent again since says nothing, except that a lease is over.
func (m *Machine) refused(now time.Duration, sent *call, isLatest bool, problem *Problem) {
	if problem.Code == "not_leader" {
		m.follow(now, sent.link, problem.Leader)
	}
	e := m.entries.get(sent.key)
	if e == nil {
		return
	}
	switch p := e.phase.(type) {
	case *confirming:
		if SaysNothingOfTheLease(problem.Code) {
			m.beatFailed(now, p.held, problem.RetryAfter)
		} else {
			m.askAnew(now, sent.key)
		}
	case *held:
		if IsDenied(problem.Code) {
			e.denied = problem
			m.beatFailed(now, p, problem.RetryAfter)
		} else if SaysNothingOfTheLease(problem.Code) {
			m.beatFailed(now, p, problem.RetryAfter)
		} else {
			m.end(sent.key, Ended{EndLost, Told, problem})
		}
	case *jeopardy:
		if IsDenied(problem.Code) {
			e.denied = problem
		} else if !SaysNothingOfTheLease(problem.Code) {
			m.end(sent.key, Ended{EndLost, Told, problem})
		}
	case *acquiring:
		if isLatest {
			m.acquireRefused(now, sent.key, p, problem)
		}
	case *releasing:
		if isLatest {
			m.releaseRefused(now, sent.key, p, problem)
		}
	case *abandoned:
		if isLatest && SaysNothingOfTheLock(problem.Code) {
			m.abandonedFailed(now, p)
		} else if isLatest {
			m.end(sent.key, Ended{Kind: EndForgotten})
		}
	}
}
