package machine

import "time"

func (m *Machine) acquiringOf(key Key) (*entry, *acquiring) {
	if e := m.entries.get(key); e != nil {
		if a, isAcquiring := e.phase.(*acquiring); isAcquiring {
			return e, a
		}
	}
	return nil, nil
}

func (m *Machine) sendAcquire(now time.Duration, key Key) {
	e, a := m.acquiringOf(key)
	if a == nil {
		return
	}
	wait := Forever
	if e.ask.Wait == 0 {
		wait = 0
	} else if a.waitUntil != Never {
		wait = max(0, a.waitUntil-now)
	}
	a.next = Never
	if wait != Forever {
		a.next = after(now, after(wait, m.settings.AnswerTimeout))
	}
	m.send(now, key, Request{Acquire, wait, a.ticket})
}

func (m *Machine) acquiringDue(now time.Duration, key Key, a *acquiring) {
	if a.giveUp <= now {
		m.giveUp(now, key)
	} else if a.next <= now {
		m.forgetCall(now, key)
		m.sendAcquire(now, key)
	}
}

// forgetCall: the answer is overdue. The request goes out again; should the old answer come, nobody waits for it. It says
// whether there was one to come.
func (m *Machine) forgetCall(now time.Duration, key Key) bool {
	e := m.entries.get(key)
	if e == nil || e.call == nil {
		return false
	}
	of := *e.call
	e.call = nil
	if a, isAcquiring := e.phase.(*acquiring); isAcquiring {
		a.isInDoubt = true
	}
	m.actions = append(m.actions, Cancel{of, key})
	m.overdue(now, of)
	return true
}

func (m *Machine) giveUp(now time.Duration, key Key) {
	e, a := m.acquiringOf(key)
	switch {
	case a == nil:
	case e.call != nil || a.isInDoubt:
		m.tell(key, NewsGaveUp, Standing{})
		m.cleanUp(now, key)
	case a.last != nil:
		m.end(key, Ended{Kind: EndRefused, Problem: a.last})
	default:
		m.end(key, Ended{Kind: EndUnreachable})
	}
}

// cleanUp leaves the queue, and finds out whether there is something to give back.
func (m *Machine) cleanUp(now time.Duration, key Key) {
	e, a := m.acquiringOf(key)
	if a == nil {
		return
	}
	ttl := e.ask.TTL
	if e.ask.Session != nil {
		standing, _ := m.standingOf(*e.ask.Session)
		ttl = standing.TTL
	}
	// Whatever it got lapses by then.
	e.phase = &abandoned{until: now + ttl, next: Never}
	if e.call != nil {
		m.actions = append(m.actions, Cancel{*e.call, key})
	} else {
		m.sendToFindOut(now, key)
	}
}

// sendToFindOut sends the same request again, without a wait: if it was granted before, this is that grant, and it can be
// released.
func (m *Machine) sendToFindOut(now time.Duration, key Key) {
	if e := m.entries.get(key); e != nil {
		if p, isAbandoned := e.phase.(*abandoned); isAbandoned {
			p.next = now + m.settings.AnswerTimeout
			m.send(now, key, Request{Kind: Acquire})
		}
	}
}

func (m *Machine) abandonedFailed(now time.Duration, p *abandoned) {
	p.next = now + m.backoff(p.tries)
	p.tries++
}

func (m *Machine) backoff(tries int) time.Duration {
	return m.jitter.spread(doubled(m.settings.BackoffFirst, tries, m.settings.BackoffMax))
}

func (m *Machine) granted(now time.Duration, sent *call, answer Granted) {
	e := m.entries.get(sent.key)
	if e == nil {
		return
	}
	switch p := e.phase.(type) {
	case *acquiring:
		if e.ask.Session != nil {
			m.joined(now, sent.key, e, *e.ask.Session)
		} else {
			m.leased(now, sent, e, p, counted(sent.sent, answer.TTL, answer.Left))
		}
	case *abandoned:
		until := max(p.until, counted(now, answer.TTL, answer.Left).LapsesAt())
		e.phase = &releasing{until: until, isQuiet: true, next: Never}
		m.sendRelease(now, sent.key)
	}
	// Otherwise it answers a request that was sent twice: it is the same grant.
}

func (m *Machine) joined(now time.Duration, key Key, e *entry, session Key) {
	standing, stands := m.standingOf(session)
	if !stands {
		// The session is on its way out, and this grant with it.
		m.end(key, Ended{Kind: EndLost, Loss: SessionClosed})
		return
	}
	e.phase = &joined{}
	m.tell(key, NewsGranted, standing)
	if standing.State(now) != Valid {
		m.tell(key, NewsJeopardy, standing)
	}
}

func (m *Machine) leased(now time.Duration, sent *call, e *entry, a *acquiring, standing Standing) {
	h := &held{standing: standing, sent: sent.sent, beat: m.beatOf(e, standing)}
	if now < standing.heartbeatAt(m.settings.HeartbeatPart) {
		e.phase = h
		m.tell(sent.key, NewsGranted, standing)
		return
	}
	// It came late, after a wait in line: nobody knows how much of the lease is left.
	a.next = now + standing.TTL
	e.phase = &confirming{a, h}
	m.sendBeat(now, sent.key)
}

func (m *Machine) tryAcquireLater(now time.Duration, a *acquiring, atLeast time.Duration) {
	a.next = after(now, max(m.backoff(a.tries), atLeast))
	a.tries++
}

func (m *Machine) acquireRefused(now time.Duration, key Key, a *acquiring, problem *Problem) {
	if SaysNothingOfTheLock(problem.Code) {
		m.undecided(now, key, a, problem)
		return
	}
	isInTheWay := problem.Code == "lock_held" || problem.Code == "reclaim_window"
	switch {
	case isInTheWay && a.waitUntil > now && problem.Ticket != "":
		a.ticket = problem.Ticket
		m.sendAcquire(now, key)
	case problem.Code == "ticket_not_found" && a.ticket != "":
		a.ticket = ""
		m.sendAcquire(now, key)
	default:
		// This try came to nothing. What came of one that was never answered, nobody knows: it may have been granted, and
		// its lease be over by now.
		if a.isInDoubt {
			problem.Outcome = "unknown"
		}
		m.end(key, Ended{Kind: EndRefused, Problem: problem})
	}
}

// undecided: the server cannot decide just now. It is asked again, unless that would be too late for the caller.
func (m *Machine) undecided(now time.Duration, key Key, a *acquiring, problem *Problem) {
	a.isInDoubt = a.isInDoubt || problem.Outcome == "unknown"
	// Another server may know more, so its hint does not bind when there is a choice.
	pause := max(0, problem.RetryAfter)
	if problem.Code == "not_leader" {
		pause = 0
	}
	a.last = problem
	if a.giveUp != Never && after(now, pause) >= a.giveUp {
		m.giveUp(now, key)
	} else {
		m.tryAcquireLater(now, a, pause)
	}
}
