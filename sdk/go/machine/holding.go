package machine

import "time"

func (m *Machine) heldDue(now time.Duration, key Key, h *held) {
	switch h.standing.State(now) {
	case Lost:
		m.lapse(key)
	case InJeopardy:
		m.inJeopardy(key, h.standing)
	default:
		if h.beat.at <= now {
			m.sendBeat(now, key)
		}
	}
}

// lapse ends a lease whose ttl is over. If the last renewal was not let in, that is why.
func (m *Machine) lapse(key Key) {
	if e := m.entries.get(key); e != nil && e.denied != nil {
		m.end(key, Ended{EndLost, Told, e.denied})
	} else {
		m.end(key, Ended{Kind: EndLost, Loss: Lapsed})
	}
}

func (m *Machine) inJeopardy(key Key, standing Standing) {
	e := m.entries.get(key)
	e.phase = &jeopardy{standing}
	m.tell(key, NewsJeopardy, standing)
	for _, member := range inOrder(e.members) {
		if under := m.entries.get(member); under != nil {
			if _, isJoined := under.phase.(*joined); isJoined {
				m.tell(member, NewsJeopardy, standing)
			}
		}
	}
}

// beatOf is the next heartbeat of a lease, if it is to have any.
func (m *Machine) beatOf(e *entry, standing Standing) beat {
	if e.isKept {
		return m.nextBeat(standing)
	}
	return noBeat
}

// nextBeat is the next heartbeat of a lease: early rather than late.
func (m *Machine) nextBeat(standing Standing) beat {
	return beat{at: standing.Since + m.jitter.shortened(standing.TTL/m.settings.HeartbeatPart), firstSent: Never}
}

func (m *Machine) heldOf(key Key) *held {
	if e := m.entries.get(key); e != nil {
		switch p := e.phase.(type) {
		case *held:
			return p
		case *confirming:
			return p.held
		}
	}
	return nil
}

func (m *Machine) sendBeat(now time.Duration, key Key) {
	m.giveUpStalledLink(now, key)
	h := m.heldOf(key)
	if h == nil {
		return
	}
	resend := m.jitter.spread(max(h.standing.TTL/resendPart, resendMin))
	if m.send(now, key, Request{Kind: Renew}) {
		h.beat.tries++
		h.beat.firstSent = min(h.beat.firstSent, now)
		h.beat.at = now + resend
	}
}

// giveUpStalledLink: a server that answers others is slow. One that answers nobody is gone, and another may be there.
func (m *Machine) giveUpStalledLink(now time.Duration, key Key) {
	h := m.heldOf(key)
	if !m.isUp || h == nil || h.beat.firstSent == Never {
		return
	}
	if now-max(h.beat.firstSent, m.heard) >= h.standing.TTL/stallPart {
		h.beat.firstSent = Never
		m.servers.rotate()
		m.dropLink(now)
	}
}

func (m *Machine) renewed(now time.Duration, sent *call, answer Renewed) {
	e := m.entries.get(sent.key)
	if e == nil {
		return
	}
	standing := counted(sent.sent, answer.TTL, answer.Left)
	var news News
	switch p := e.phase.(type) {
	case *held:
		// An answer may come after a younger one. A server that counts in milliseconds may say of the younger that it ends
		// a little earlier, so they are told apart by when they were asked for.
		if p.sent > sent.sent {
			return
		}
		news = NewsRenewed
	case *confirming:
		if standing.State(now) != Valid {
			return
		}
		news = NewsGranted
	default:
		// In jeopardy the work has been told to stop: it is too late to go on.
		return
	}
	e.phase, e.denied = &held{standing: standing, sent: sent.sent, beat: m.beatOf(e, standing)}, nil
	m.tell(sent.key, news, standing)
}

// beatFailed puts the next try off; atLeast is what the server asks for, less than none if it does not.
func (m *Machine) beatFailed(now time.Duration, h *held, atLeast time.Duration) {
	first, most := m.settings.BackoffFirst, h.standing.TTL/resendPart
	pause := m.jitter.spread(doubled(first, h.beat.tries, min(max(most, first), first*25)))
	if atLeast >= 0 {
		pause = min(max(pause, atLeast), most)
	}
	h.beat.at = now + pause
}

// askAnew: the grant was over before anybody could be told of it.
func (m *Machine) askAnew(now time.Duration, key Key) {
	e := m.entries.get(key)
	a := e.phase.(*confirming).acquiring
	a.ticket, a.isInDoubt = "", true
	e.phase, e.call = a, nil
	m.sendAcquire(now, key)
}
