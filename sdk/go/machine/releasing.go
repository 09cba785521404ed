package machine

import (
	"slices"
	"time"
)

func (m *Machine) startRelease(now time.Duration, key Key, isQuiet bool) {
	e := m.entries.get(key)
	if e == nil {
		return
	}
	until := now
	if c, isConfirming := e.phase.(*confirming); isConfirming {
		until = c.held.standing.LapsesAt()
	} else if standing, stands := m.Standing(key); stands {
		until = standing.LapsesAt()
	}
	e.phase = &releasing{until: until, isQuiet: isQuiet, next: Never}
	e.call = nil
	// Whoever stands under it must not believe in it from here on.
	members := inOrder(e.members)
	e.members = map[Key]struct{}{}
	for _, member := range members {
		m.end(member, Ended{Kind: EndLost, Loss: SessionClosed})
	}
	m.sendRelease(now, key)
}

func (m *Machine) sendRelease(now time.Duration, key Key) {
	if e := m.entries.get(key); e != nil {
		if p, isReleasing := e.phase.(*releasing); isReleasing {
			p.next = now + m.settings.AnswerTimeout
			m.send(now, key, Request{Kind: Release})
		}
	}
}

func (m *Machine) releasingDue(now time.Duration, key Key, e *entry, p *releasing) {
	var longer time.Duration
	if e.ask.Session != nil {
		if standing, stands := m.standingOf(*e.ask.Session); stands {
			longer = standing.LapsesAt()
		}
	}
	if m.forgetCall(now, key) {
		p.isInDoubt = true
	}
	p.until = max(p.until, longer)
	switch {
	case p.until > now:
		m.sendRelease(now, key)
	case p.isQuiet:
		m.end(key, Ended{Kind: EndForgotten})
	default:
		m.end(key, Ended{Kind: EndReleaseUnanswered})
	}
}

func (m *Machine) releaseFailed(now time.Duration, p *releasing, failure Failure) {
	p.isInDoubt = p.isInDoubt || failure == Unknown
	p.next = now + m.backoff(p.tries)
	p.tries++
}

func (m *Machine) released(key Key) {
	e := m.entries.get(key)
	if e == nil {
		return
	}
	if p, isReleasing := e.phase.(*releasing); isReleasing {
		if p.isQuiet {
			m.end(key, Ended{Kind: EndForgotten})
		} else {
			m.end(key, Ended{Kind: EndReleased})
		}
	}
}

func (m *Machine) releaseRefused(now time.Duration, key Key, p *releasing, problem *Problem) {
	switch {
	case SaysNothingOfTheLease(problem.Code):
		failure := Unsent
		if problem.Outcome == "unknown" {
			failure = Unknown
		}
		m.releaseFailed(now, p, failure)
	case p.isQuiet:
		m.end(key, Ended{Kind: EndForgotten})
	case slices.Contains(leaseIsOver, problem.Code) && problem.Reason != "expired" && p.isInDoubt:
		// Nothing is left to release because an earlier try did it, whose answer was lost. A server that remembers it says
		// so; one that has started since does not know.
		m.end(key, Ended{Kind: EndReleased})
	default:
		m.end(key, Ended{Kind: EndNotReleased, Problem: problem})
	}
}
